"""A batch on a GPU, without one: no wait for the host before the end, no shape that depends on data, few operations.

FakeTensorMode runs every line of the torch form on tensors of device cuda that have shapes and no values. A GPU itself
is asked in test_device.py.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.decide import applicable
from offpolicy_monitor.measure.evaluate import Rows
from offpolicy_monitor.measure.measurer import GPU_BLOCK_TOKENS
from offpolicy_monitor.measure.summarise import Views, block_sums
from offpolicy_monitor.measure.tables import OF_DATA, OF_INGESTED
from offpolicy_monitor.measure.totals import Totals
from offpolicy_monitor.measure.worst import figures_of_sequences
from offpolicy_monitor.methods import PRESETS, MethodRow
from offpolicy_monitor.vocabulary import RESCORED, SUPPORTS

from tests.fixtures.fake_cuda import DEVICE, Operations, fake_cuda
from tests.measure.rows import ROWS
from tests.reference import COLUMNS

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real GPU is here, and test_device.py asks that")
MAKERS = (*OF_DATA, *OF_INGESTED)
ORIGIN = Origin(4, 0, {"engine": "vllm"})
#: Of the whole of a batch with every preset and every table.
MOST_OPERATIONS = 300
#: More where all log-probs that are in no gap were sent.
MOST_BESIDE = 90
BESIDE = (*RESCORED, *SUPPORTS.values())
#: A batch of TOKENS in SEQUENCES is a block. What is done to its shapes is known where they come again, in all tests.
TOKENS, SEQUENCES = 400, 20
#: Of each gap.
FIGURES_OF_SEQUENCES = 4
#: Per token of a block, with its log-probs: what memory it takes.
MOST_BYTES = 890
FORMS: dict[str, dict[str, Any]] = {
    "finite, advantages of sequences": {},
    "finite, advantages of tokens": {"per_token": True},
    "some not finite, advantages of sequences": {"holes": True},
    "some not finite, advantages of tokens": {"holes": True, "per_token": True},
    "no advantages": {"advantages": False},
    "two log-probs": {"names": COLUMNS[:2]},
    "float64": {"dtype": np.float64},
    "beside the gaps": {"beside": BESIDE},
    "beside the gaps, some not finite": {"beside": BESIDE, "holes": True},
}


def batch(
    tokens: int,
    per_token: bool = False,
    holes: bool = False,
    advantages: bool = True,
    names: tuple[str, ...] = COLUMNS,
    dtype: Any = np.float32,
    beside: tuple[str, ...] = (),
    sequences: int = SEQUENCES,
) -> RaggedBatch:
    lengths = np.full(sequences, tokens // sequences, np.int64)
    sent = (*names, *beside)
    columns: dict[str, Any] = {name: np.full(tokens, -1.0 - index / 8, dtype) for index, name in enumerate(sent)}
    if holes:
        columns[names[0]][:3] = np.nan
        columns[sent[-1]][2:5] = np.nan
    columns["policy_versions"], columns["turns"] = np.ones(tokens, np.int64), np.zeros(tokens, np.int64)
    own = {"advantages": np.ones(tokens if per_token else sequences, dtype)} if advantages else {}
    return RaggedBatch.from_positions(lengths, columns | (own if per_token else {}), {} if per_token else own)


def measured(
    data: RaggedBatch, rows: tuple[MethodRow, ...], block_tokens: int
) -> tuple[list[torch.Tensor], Operations]:
    """Everything that a batch comes to with each of its blocks, still on the device, and what was started there."""
    with fake_cuda() as operations:
        loaded = DeviceBatch.load(data, DEVICE)
        views, totals, found = Views(loaded, applicable(rows, loaded), ORIGIN), Totals(), []
        for view in views.of_blocks(block_tokens):
            totals.add(block_sums(view, MAKERS, {"figures": figures_of_sequences(view)}))
            found.append(totals.buffer())
        return found, operations


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_of_any_form_never_waits_for_the_host(form: str) -> None:
    """Nor with another block, of which there comes no more than the figures of its sequences."""
    (whole, cut), _ = measured(batch(2 * TOKENS, sequences=2 * SEQUENCES, **FORMS[form]), ROWS, TOKENS)
    assert (whole.device, whole.dtype, whole.ndim) == (DEVICE, torch.float64, 1)
    gaps = 1 if FORMS[form].get("names") else 3
    assert len(cut) - len(whole) == FIGURES_OF_SEQUENCES * gaps * SEQUENCES


@pytest.mark.parametrize("form", FORMS)
def test_an_evaluation_without_detail_never_waits_for_the_host(form: str) -> None:
    with fake_cuda():
        loaded = DeviceBatch.load(batch(TOKENS, **FORMS[form]), DEVICE)
        views, asked = Views(loaded, (), ORIGIN), Rows(loaded, applicable(ROWS, loaded), "none", TOKENS)
        for view in views.of_blocks(TOKENS):
            block_sums(view, OF_DATA, {})
            assert len(list(asked.add(view.block))) >= 1


def test_experts_are_compared_without_a_wait() -> None:
    data = batch(TOKENS)
    experts = {f"{name}experts": np.zeros((TOKENS, 2, 4), np.uint8) for name in ("sampling_", "old_", "")}
    with_experts = RaggedBatch(
        data.offsets, {**data.columns, **experts}, data.lengths, None, data.per_token | set(experts)
    )
    assert measured(with_experts, PRESETS, GPU_BLOCK_TOKENS)[0][0].device == DEVICE


@pytest.fixture(scope="module")
def started() -> Callable[..., Operations]:
    """What is started for so many tokens and these log-probs beside the gaps."""
    measured(batch(TOKENS, beside=BESIDE), PRESETS, GPU_BLOCK_TOKENS)  # constants are brought to a device once
    return cache(lambda tokens, *beside: measured(batch(tokens, beside=beside), PRESETS, GPU_BLOCK_TOKENS)[1])


def test_operations_are_bounded_and_do_not_grow_with_the_tokens_and_memory_is_bounded(
    started: Callable[..., Operations],
) -> None:
    small, large = started(TOKENS), started(1_000_000)
    assert small.number == large.number <= MOST_OPERATIONS
    assert large.peak_bytes <= MOST_BYTES * 1_000_000


def test_log_probs_beside_the_gaps_take_few_operations_more_whatever_the_tokens(
    started: Callable[..., Operations],
) -> None:
    without, small, large = started(TOKENS), started(TOKENS, *BESIDE), started(1_000_000, *BESIDE)
    assert small.number == large.number <= without.number + MOST_BESIDE


def test_a_look_at_a_value_and_a_shape_that_depends_on_data_would_be_seen() -> None:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    with fake_cuda():
        values = torch.zeros(8, device=DEVICE)
        with pytest.raises(AssertionError, match="waits"):
            torch.zeros(8).to(DEVICE)
        with pytest.raises(AssertionError, match="waits"):
            torch.tensor([1.0], device=DEVICE)
        for look in (values.sum().item, values.sum().__bool__, lambda: values.tolist()):
            with pytest.raises(DataDependentOutputException):
                look()
        with pytest.raises(DynamicOutputShapeException):
            torch.ops.aten.nonzero(values)
        with pytest.raises(AssertionError, match="decide the shape"):
            values[values > 0]
        with pytest.raises(RuntimeError, match="device"):
            values + torch.zeros(8)
