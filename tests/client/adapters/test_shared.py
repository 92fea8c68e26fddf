"""What the adapters share: rows and lengths, the place of a process, the collector, and the guard around them."""

import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.ends import AtEnd
from offpolicy_monitor.client.adapters.shared.layouts import detached, lengths, rows, split
from offpolicy_monitor.client.adapters.shared.made import made
from offpolicy_monitor.client.adapters.shared.place import in_groups_of, of_process
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.temperature import Scaling
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.client.adapters.recorder import Recorder


def test_cumulative_lengths_become_lengths() -> None:
    assert lengths(torch.tensor([0, 3, 3, 8], dtype=torch.int32)).tolist() == [3, 0, 5]
    assert lengths([0, 2]).dtype == np.int64


def test_packed_arrays_split_into_views_and_lengths_that_do_not_add_up_are_refused() -> None:
    packed = torch.arange(5.0)
    parts = split(packed, [2, 0, 3])
    assert [part.tolist() for part in parts] == [[0.0, 1.0], [], [2.0, 3.0, 4.0]]
    assert parts[2].data_ptr() == packed[2:].data_ptr()
    with pytest.raises(ValueError, match="lengths add up to 4, the packed array has 5 entries"):
        split(packed, [4])


def test_rows_leave_their_graph_behind() -> None:
    padded = torch.ones(2, 3, requires_grad=True) * 2
    assert [row.requires_grad for row in rows(padded)] == [False, False]
    assert detached([1.0]) == [1.0] and not detached(padded).requires_grad


def test_a_process_without_torch_distributed_is_the_only_shard() -> None:
    assert of_process() == (0, 1)
    assert in_groups_of(1)() == (0, 1)


def test_of_ranks_that_hold_the_same_tokens_the_first_posts() -> None:
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=2, world_size=4)
    try:
        assert of_process() == (2, 4)
        assert (in_groups_of(2)(), in_groups_of(4)()) == ((1, 2), None)
    finally:
        torch.distributed.destroy_process_group()


def test_an_end_that_cannot_be_said_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        strict = False

        def finish(self, *, for_run: bool = False) -> None:
            raise OSError("no route to host")

    AtEnd(Broken()).on_train_end(None)
    made(lambda: Recorder(1)).finish()  # pyrefly: ignore[bad-argument-count]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


class Lenient(Recorder):
    strict = False


def test_what_an_adapter_raises_is_logged_once_and_raised_to_a_strict_monitor_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @quiet
    def broken(monitor: Logs) -> None:
        raise KeyError("completion_mask")

    with caplog.at_level(logging.WARNING, "offpolicy_monitor"):
        broken(Lenient())
        broken(Lenient())
    assert [
        record.getMessage().endswith("posts nothing: KeyError('completion_mask')") for record in caplog.records
    ] == [True]
    with pytest.raises(KeyError):
        broken(Recorder())


def test_importing_the_adapters_imports_no_framework_and_no_torch() -> None:
    names = ", ".join(f"offpolicy_monitor.client.adapters.{name}" for name in ("trl", "verl", "prime_rl", "slime"))
    heavy = "{'torch', 'trl', 'transformers', 'verl', 'prime_rl', 'slime', 'megatron'}"
    script = f"import sys, {names}; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_sides_of_which_one_is_after_the_temperature_are_said_once_with_the_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scaling = Scaling("its hook", "logprobs_mode=processed_logprobs")
    for _ in range(2):
        scaling.look(0.7, mu=False, pi_old=True, pi=True)
    (message,) = caplog.messages
    assert message == (
        "its hook: pi_old and pi are after the sampling temperature of 0.7, mu is before it, so that every ratio has "
        "it in it: logprobs_mode=processed_logprobs"
    )


@pytest.mark.parametrize(
    ("temperature", "scaled"),
    [
        (1.0, {"mu": False, "pi": True}),
        (0, {"mu": False, "pi": True}),
        (None, {"mu": False, "pi": True}),
        (0.7, {"mu": True, "pi": True}),
        (0.7, {"mu": False, "pi": False}),
        (0.7, {"mu": None, "pi": True}),
    ],
)
def test_sides_that_are_alike_or_not_known_and_temperatures_that_change_nothing_are_not_mentioned(
    caplog: pytest.LogCaptureFixture, temperature: object, scaled: dict[str, bool | None]
) -> None:
    Scaling("its hook", "a setting").look(temperature, **scaled)
    assert caplog.messages == []
