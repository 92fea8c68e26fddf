"""What a trainer reduces itself is what the service would have made of the same arrays, whatever form they came in."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.batch import Origin
from offpolicy_monitor.client.reduce import ragged, reduced
from offpolicy_monitor.errors import ConfigurationError, Refusal
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary import StepSummary, from_bytes, merge_all
from offpolicy_monitor.wire.decode import decode_batch

from tests.fixtures.forks import ended
from tests.fixtures.reduced import arrays_of, envelope_of, raw_body
from tests.wire.bodies import LIMITS, SAFETENSORS, frame_body, whole

ENVELOPE = envelope_of(0, 1, sequence_ids=[f"s{i}" for i in range(6)])
LOGPROBS = ("sampling_logprobs", "old_logprobs", "logprobs")


def summary_of(arrays: Any, envelope: dict[str, Any] = ENVELOPE, **options: Any) -> StepSummary:
    return from_bytes(reduced(envelope, arrays, **options)["summary"].tobytes())


def by_the_service(body: bytes) -> StepSummary:
    message = whole(decode_batch(body, SAFETENSORS, LIMITS))
    envelope = message.envelope
    origin = Origin(envelope.policy_version, envelope.shard, envelope.labels)
    return Measurer("cpu").measure(message.batch, PRESETS, origin)


def tensors(arrays: Any) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def test_padded_arrays_and_tensors_give_the_summary_of_the_service() -> None:
    arrays = arrays_of(0)
    wanted = by_the_service(raw_body(ENVELOPE, arrays))
    assert wanted.batch["tokens"] == int(arrays["mask"].sum())
    assert summary_of(arrays) == wanted
    assert summary_of(tensors(arrays)) == wanted
    asking = {name: tensor.requires_grad_() if tensor.is_floating_point() else tensor
              for name, tensor in tensors(arrays).items()}  # fmt: skip
    assert summary_of(asking) == wanted


def test_rows_and_packed_tokens_give_the_same_summary_as_their_padded_form() -> None:
    arrays = arrays_of(1)
    lengths = arrays["mask"].sum(1)
    by_token = [name for name, array in arrays.items() if array.ndim > 1 and name != "mask"]
    of_sequences = {name: arrays[name] for name in ("advantages", "policy_versions", "rewards")}
    rows = {name: [row[:n] for row, n in zip(arrays[name], lengths, strict=True)] for name in by_token}
    packed = {name: np.concatenate(found) for name, found in rows.items()}
    wanted = summary_of(arrays)
    assert summary_of({**rows, **of_sequences}) == wanted
    assert (
        summary_of({name: [torch.tensor(row) for row in found] for name, found in rows.items()} | of_sequences)
        == wanted
    )
    assert summary_of({**packed, **of_sequences, "lengths": lengths}) == wanted


def test_bfloat16_is_read_as_the_service_reads_it() -> None:
    arrays = arrays_of(2)
    halves = {name: torch.from_numpy(arrays[name]).bfloat16() for name in LOGPROBS}
    patterns = {name: half.view(torch.int16).numpy().view(np.uint16) for name, half in halves.items()}
    wanted = by_the_service(frame_body(ENVELOPE, LOGPROBS, **{**arrays, **patterns}))
    assert "signature/grid/old" not in wanted.arrays
    assert summary_of({**arrays, **halves}) == wanted
    assert summary_of({**arrays, **patterns}, bfloat16=LOGPROBS) == wanted


def test_the_rows_of_the_run_are_those_that_run() -> None:
    rows = [{"name": "tight", "method": "opsm", "gap": "total", "level": "geometric", "delta": 0.001}]
    methods = summary_of(arrays_of(0), methods=rows).methods
    assert {name: method.spec for name, method in methods.items()} == {
        "tight": {"method": "opsm", "gap": "total", "level": "geometric", "delta": 0.001}
    }
    with pytest.raises(ConfigurationError, match="does not know"):
        reduced(ENVELOPE, arrays_of(0), [{"name": "new", "method": "of a later release"}])


def test_the_trainers_own_torch_is_left_as_it_is() -> None:
    wanted = summary_of(arrays_of(0))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert summary_of(arrays_of(0)) == wanted
        assert torch.get_num_threads() == 2
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("arrays", "field"),
    [
        ({"logprobs": np.zeros(3, np.float32)}, "logprobs"),
        ({"shoes": np.zeros(3, np.float32)}, "shoes"),
        ({"old_logprobs": np.zeros(3, np.float32), "logprobs": np.zeros(3, np.float32)}, "lengths"),
        ({"old_logprobs": np.zeros((1, 3), np.int32), "logprobs": np.zeros((1, 3), np.float32)}, "old_logprobs"),
        ({"old_logprobs": np.zeros((1, 3), np.float32), "logprobs": np.zeros((1, 2), np.float32)}, "logprobs"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(arrays: Any, field: str) -> None:
    with pytest.raises(Refusal) as caught:
        ragged(arrays)
    assert caught.value.errors[0].field == field


def part(seed: int) -> bytes:
    """One rank's summary."""
    return reduced(envelope_of(seed, 2), arrays_of(seed))["summary"].tobytes()


#: The same in a process of its own.
PART = """
import sys
from offpolicy_monitor.client.reduce import reduced
from tests.fixtures.reduced import arrays_of, envelope_of
sys.stdout.write(reduced(envelope_of(1, 2), arrays_of(1))["summary"].tobytes().hex())
"""


def test_summaries_of_two_processes_merge_to_those_of_one() -> None:
    status, other = ended(["-c", PART], os.environ)
    assert status == 0, other
    raw = [by_the_service(raw_body(envelope_of(seed, 2), arrays_of(seed))) for seed in range(2)]
    assert merge_all(map(from_bytes, (part(0), bytes.fromhex(other)))) == merge_all(raw)


def test_without_torch_the_error_names_what_to_install() -> None:
    script = """
import sys
sys.modules["torch"] = None
import numpy as np
from offpolicy_monitor.client.reduce import reduced
column = np.zeros((1, 2), np.float32)
try:
    reduced({"step": 0}, {"old_logprobs": column, "logprobs": column})
except Exception as error:
    print(type(error).__name__, error)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "ConfigurationError reduce=True needs torch: pip install 'offpolicy-monitor[server]'\n"


@pytest.fixture(params=["cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A GPU."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    yield request.param


def test_tensors_on_a_gpu_are_reduced_there(device: str) -> None:
    arrays = arrays_of(0)
    on_device = {name: tensor.to(device) for name, tensor in tensors(arrays).items()}
    found, wanted = summary_of(on_device), summary_of(arrays)
    assert found.batch == wanted.batch
    for gap, figures in wanted.gaps.items():
        assert found.gaps[gap].sums["tokens"] == figures.sums["tokens"]
        assert found.gaps[gap].sums["k3"] == pytest.approx(figures.sums["k3"], rel=1e-5)


def test_a_named_device_is_the_one_that_computes() -> None:
    with pytest.raises(ConfigurationError, match="cuda:77"):
        reduced(ENVELOPE, arrays_of(0), device="cuda:77")
