"""The operations that a GPU does, done here on the CPU: they give the oracle's figures, and those of the host."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from offpolicy_monitor.core import device
from offpolicy_monitor.core.cells import Divided, sums_by_cell
from offpolicy_monitor.core.ragged import RUN_TOKENS, Segments
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS

from tests.measure.test_against_oracle import assert_agrees, evaluated
from tests.measure.test_laws import assert_nearly_equal
from tests.reference import Sequence
from tests.strategies import packed, random_sequences, sequences

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_on_the_host() -> Iterator[None]:
    """As where every tensor lies on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "is_host", lambda where: False)
        yield


@settings(max_examples=60)
@given(sent=sequences())
def test_any_batch_gets_the_oracles_figures(sent: list[Sequence]) -> None:
    assert_agrees(evaluated(sent), sent)


@pytest.mark.parametrize("noise", [1e-4, 0.05, 1.0])
def test_a_summary_is_that_of_the_host(noise: float) -> None:
    batch = packed(random_sequences(9, [1, 700, 33, 2000, RUN_TOKENS, RUN_TOKENS + 1], noise, drift=noise / 20))
    found = Measurer("cpu").measure(batch, PRESETS).figures()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "is_host", lambda where: True)
        assert_nearly_equal(found, Measurer("cpu").measure(batch, PRESETS).figures())


@pytest.mark.parametrize("kind", ["sum", "min", "max"])
def test_runs_of_tokens_come_to_what_their_sequences_do(kind: str) -> None:
    source = np.random.default_rng(3)
    lengths = np.array([1, RUN_TOKENS - 1, RUN_TOKENS, RUN_TOKENS + 1, 3 * RUN_TOKENS, 10_007])
    values = source.standard_normal((2, lengths.sum()))
    found = getattr(Segments(lengths, CPU), kind)(torch.from_numpy(values))
    ends = np.cumsum(lengths)
    wanted = [[getattr(np, kind)(row[end - n : end]) for n, end in zip(lengths, ends, strict=True)] for row in values]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("number", [1, 63, 64, 1000])
def test_copies_of_cells_add_up_to_them(number: int) -> None:
    source = np.random.default_rng(4)
    cells = [torch.from_numpy(source.integers(0, size, number).astype(np.int32)) for size in (3, 5)]
    columns = [torch.from_numpy(source.standard_normal(number)) for _ in range(2)]
    divided = Divided({"by three": (cells[0], 3), "by five": (cells[1], 5)}, columns, copies=64)
    [sums] = sums_by_cell(divided)
    for found, (own, size) in zip(torch.split(sums, divided.sizes), divided.divisions.values(), strict=True):
        for cell in range(size):
            inside = own == cell
            wanted = [float(inside.sum()), *(float(column[inside].sum()) for column in columns)]
            np.testing.assert_allclose(found[cell].numpy(), wanted, atol=1e-12)
