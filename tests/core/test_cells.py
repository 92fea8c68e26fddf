"""Values are counted and added up in the cells that they are in, and another rank, shape or dtype is refused."""

from typing import Any

import pytest
import torch
from offpolicy_monitor.core.cells import Divided, Tally, sums_by_cell

CELLS = torch.tensor([[0, 2, 2], [1, 0, 1]])


def test_cells_are_counted_row_by_row_and_weighed() -> None:
    weights = torch.tensor([[1.0, 0.5, 0.25], [0.0, 2.0, 4.0]])
    [found] = sums_by_cell(Tally(CELLS, 3, (None, weights)))
    assert found.dtype == torch.float64
    assert found.tolist() == [[[1, 0, 2], [1, 2, 0]], [[1, 0, 0.75], [2, 4, 0]]]


def test_weights_of_fewer_dimensions_serve_all_rows_alike() -> None:
    weights = torch.tensor([[True, False, True], [True, True, True]])
    [found] = sums_by_cell(Tally(torch.stack([CELLS, 2 - CELLS]), 3, (weights,)))
    assert found.tolist() == [[[[1, 0, 1], [1, 2, 0]], [[1, 0, 1], [0, 2, 1]]]]


def test_each_part_comes_to_its_own_and_each_division_to_its_cells() -> None:
    divided = Divided({"first": (CELLS[0], 3), "second": (CELLS[1].int(), 2)}, [torch.tensor([1.0, 2.0, 3.0])])
    counts, sums = sums_by_cell(Tally(CELLS, 4), divided)
    assert counts.tolist() == [[[1, 0, 2, 0], [1, 2, 0, 0]]]
    assert [part.tolist() for part in torch.split(sums, divided.sizes)] == [[[1, 1], [0, 0], [2, 5]], [[1, 2], [2, 4]]]


FEW, ROW = torch.zeros(2, dtype=torch.int64), torch.zeros(3)


@pytest.mark.parametrize(
    ("part", "sent", "error"),
    [
        (Tally, (torch.tensor(1), 3), ValueError),
        (Tally, (CELLS.float(), 3), TypeError),
        (Tally, (CELLS, 3, (None, torch.zeros(2, 2))), ValueError),
        (Tally, (CELLS, 3, (torch.tensor(1.0),)), ValueError),
        (Tally, (CELLS, 3, (torch.zeros(1, 2, 3),)), ValueError),
        (Tally, (CELLS, 3, (torch.zeros(2, 3, dtype=torch.complex64),)), TypeError),
        (Divided, ({"both": (CELLS, 3)}, [ROW]), ValueError),
        (Divided, ({"one": (CELLS[0].float(), 3)}, [ROW]), TypeError),
        (Divided, ({"one": (CELLS[0], 3), "few": (FEW, 3)}, [ROW]), ValueError),
        (Divided, ({"one": (CELLS[0], 3)}, [ROW, torch.zeros(2)]), ValueError),
        (Divided, ({"one": (CELLS[0], 3)}, [ROW.long()]), TypeError),
    ],
)
def test_another_rank_shape_or_dtype_is_refused(part: Any, sent: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        part(*sent)
