"""A batch on a GPU, without one: no wait for the host before the end, no shape that depends on data, few operations.

FakeTensorMode runs every line of the torch form on tensors of device cuda that have shapes and no values. A GPU itself
is asked in test_device.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.decide import applicable
from offpolicy_monitor.measure.evaluate import Rows
from offpolicy_monitor.measure.measurer import GPU_BLOCK_TOKENS
from offpolicy_monitor.measure.summarise import Views, block_sums
from offpolicy_monitor.measure.tables import MAKERS, OF_DATA
from offpolicy_monitor.measure.totals import Totals
from offpolicy_monitor.measure.view import FIGURES_OF_SEQUENCES
from offpolicy_monitor.methods import ON_REQUEST, PRESETS, MethodRow
from offpolicy_monitor.vocabulary import EXPERT_IDS, GAPS, RESCORED, SUPPORTS

from tests.fixtures.fake_cuda import DEVICE, Operations, fake_cuda
from tests.measure.rows import ROWS
from tests.reference import COLUMNS

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real GPU is here, and test_device.py asks that")

ORIGIN = Origin(4, 0, {"engine": "vllm"})
BESIDE = (*RESCORED, *SUPPORTS.values())
#: A batch of TOKENS in SEQUENCES is a block. What is done to its shapes is known where they come again, in all tests.
TOKENS, SEQUENCES = 400, 20


class Form(NamedTuple):
    """What a batch has, and with every preset and every table the operations that it may take, and the bytes of memory
    per token of a block, with its log-probs."""

    batch: dict[str, Any]
    operations: int
    bytes: int


FORMS = {
    "finite, advantages of sequences": Form({}, 245, 890),
    "finite, advantages of tokens": Form({"per_token": True}, 252, 890),
    "some not finite, advantages of sequences": Form({"holes": True}, 271, 1760),
    "some not finite, advantages of tokens": Form({"holes": True, "per_token": True}, 280, 1760),
    "no advantages": Form({"advantages": False}, 218, 890),
    "two log-probs": Form({"names": COLUMNS[:2]}, 223, 390),
    "float64": Form({"dtype": np.float64}, 242, 970),
    "experts": Form({"experts": True}, 248, 890),
    "all that gaps are measured by": Form({"holes": True, "per_token": True, "experts": True}, 283, 1760),
    "all of it, finite": Form({"beside": BESIDE, "per_token": True, "experts": True}, 272, 980),
    "beside the gaps, some not finite": Form({"beside": BESIDE, "holes": True}, 288, 1760),
    "all of it": Form({"beside": BESIDE, "holes": True, "per_token": True, "experts": True}, 300, 1760),
}
#: What a batch of any form may take with every preset and every table; and the copies of what it is of to the device.
MOST_OPERATIONS, MOST_COPIES = 300, 21
#: What one of finite log-probs may take where a method on request comes to that. CPPO's drift is made for the presets'
#: parameters, which what-if has, and again for a row that has others.
MOST_ON_REQUEST = {
    "m2po_paper": 275,
    "vaco": 257,
    "cppo": 296,
    "cppo_dense": 296,
    "cppo_fixed": 342,
    "seq_mis": 250,
}


def batch(
    tokens: int,
    per_token: bool = False,
    holes: bool = False,
    advantages: bool = True,
    names: tuple[str, ...] = COLUMNS,
    dtype: Any = np.float32,
    beside: tuple[str, ...] = (),
    experts: bool = False,
    sequences: int = SEQUENCES,
) -> RaggedBatch:
    lengths = np.full(sequences, tokens // sequences, np.int64)
    sent = (*names, *beside)
    columns: dict[str, Any] = {name: np.full(tokens, -1.0 - index / 8, dtype) for index, name in enumerate(sent)}
    if holes:
        columns[names[0]][:3] = np.nan
        columns[sent[-1]][2:5] = np.nan
    columns["policy_versions"], columns["turns"] = np.ones(tokens, np.int64), np.zeros(tokens, np.int64)
    if experts:
        columns |= {name: np.zeros((tokens, 2, 4), np.uint8) for name in EXPERT_IDS}
    own = {"advantages": np.ones(tokens if per_token else sequences, dtype)} if advantages else {}
    return RaggedBatch.from_positions(lengths, columns | (own if per_token else {}), {} if per_token else own)


def measured(
    data: RaggedBatch, rows: tuple[MethodRow, ...], block_tokens: int
) -> tuple[list[torch.Tensor], Operations]:
    """Everything that a batch comes to with each of its blocks, still on the device, and what was started there."""
    with fake_cuda() as operations:
        loaded = DeviceBatch.load(data, DEVICE)
        views, totals, found = Views(loaded, applicable(rows, loaded), ORIGIN, MAKERS), Totals(), []
        for view in views.of_blocks(block_tokens):
            totals.add(block_sums(view, MAKERS, view.figures_of_sequences()))
            found.append(totals.buffer())
        return found, operations


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_of_any_form_never_waits_for_the_host(form: str) -> None:
    [found], _ = measured(batch(TOKENS, **FORMS[form].batch), ROWS, TOKENS)
    assert (found.device, found.dtype, found.ndim) == (DEVICE, torch.float64, 1)


def test_another_block_brings_no_more_than_the_figures_of_its_sequences() -> None:
    (whole, cut), _ = measured(batch(2 * TOKENS, sequences=2 * SEQUENCES, **FORMS["all of it"].batch), ROWS, TOKENS)
    assert len(cut) - len(whole) == len(FIGURES_OF_SEQUENCES) * len(GAPS) * SEQUENCES


@pytest.mark.parametrize("form", FORMS)
def test_an_evaluation_without_detail_never_waits_for_the_host(form: str) -> None:
    with fake_cuda():
        loaded = DeviceBatch.load(batch(TOKENS, **FORMS[form].batch), DEVICE)
        views, asked = Views(loaded, (), ORIGIN, OF_DATA), Rows(loaded, applicable(ROWS, loaded), "none", TOKENS)
        for view in views.of_blocks(TOKENS):
            block_sums(view, OF_DATA, {})
            assert len(list(asked.add(view.block))) >= 1


@pytest.fixture(scope="module")
def brought() -> None:
    """What is brought to a device once, whatever the batch."""
    for form in ("all of it", "float64", "finite, advantages of sequences"):
        started((*PRESETS, *ON_REQUEST), TOKENS, **FORMS[form].batch)


def started(rows: Sequence[MethodRow], tokens: int, **sent: Any) -> Operations:
    return measured(batch(tokens, **sent), tuple(rows), GPU_BLOCK_TOKENS)[1]


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize("form", FORMS)
def test_operations_and_memory_are_bounded_by_the_form_of_a_batch_whatever_its_tokens(form: str) -> None:
    sent, most_operations, most_bytes = FORMS[form]
    small, large = started(PRESETS, TOKENS, **sent), started(PRESETS, 1_000_000, **sent)
    assert small.number == large.number <= most_operations <= MOST_OPERATIONS
    assert large.copies <= MOST_COPIES, "what is the same for every batch is brought once, by the small one"
    assert large.peak_bytes <= most_bytes * 1_000_000


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize("row", ON_REQUEST, ids=lambda row: row.name)
def test_a_method_on_request_takes_as_many_operations_whatever_the_tokens_and_their_sequences(row: MethodRow) -> None:
    sizes = (TOKENS, SEQUENCES), (1_000_000, SEQUENCES), (1_000_000, 50_000), (1_000_000, 2)
    numbers = {started((*PRESETS, row), tokens, sequences=sequences).number for tokens, sequences in sizes}
    assert len(numbers) == 1
    assert max(numbers) <= MOST_ON_REQUEST[row.name]


def test_a_look_at_a_value_and_a_shape_that_depends_on_data_would_be_seen() -> None:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    with fake_cuda():
        values = torch.zeros(8, device=DEVICE)
        waiting: tuple[Callable[[], Any], ...] = (
            lambda: torch.zeros(8).to(DEVICE),
            lambda: torch.zeros(8).to(device=DEVICE),
            lambda: torch.tensor([1.0], device=DEVICE),
            lambda: torch.tensor([1.0], device="cuda"),
            lambda: torch.as_tensor([1.0], device=DEVICE),
            values.cpu,
            lambda: values.to("cpu"),
            lambda: values.cpu().sum().to(DEVICE, non_blocking=True),
            lambda: torch.zeros(8).copy_(values),
            lambda: values.index_put((values > 0,), torch.ones(8, device=DEVICE)),
        )
        for wait in waiting:
            with pytest.raises(AssertionError, match="waits"):
                wait()
        of_none: tuple[Callable[[], Any], ...] = (
            lambda: values.copy_(torch.zeros(8)),
            lambda: values.__setitem__(values > 0, torch.ones(8, device=DEVICE)),
        )
        for wait in of_none:  # these enter the device, which a build without CUDA cannot
            with pytest.raises(RuntimeError, match="cuda"):
                wait()
        for look in (values.sum().item, values.sum().__bool__, lambda: values.tolist()):
            with pytest.raises(DataDependentOutputException):
                look()
        with pytest.raises(DynamicOutputShapeException):
            torch.ops.aten.nonzero(values)
        with pytest.raises(AssertionError, match="decide the shape"):
            values[values > 0]
        with pytest.raises(RuntimeError, match="device"):
            values + torch.zeros(8)
