"""Every public function of core/ says what it takes and gives, and refuses a tensor of another rank or dtype."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor import core
from offpolicy_monitor.core.advantages import Advantages, signs_of
from offpolicy_monitor.core.cells import Divided
from offpolicy_monitor.core.columns import token_columns
from offpolicy_monitor.core.corrections import Decided, Group, Placed
from offpolicy_monitor.core.decision import drop_terms, split_sums
from offpolicy_monitor.core.density import joint_tally
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.differences import above, difference_terms, differences, exponentials_of
from offpolicy_monitor.core.divergences import (
    bernoulli,
    binary_kls,
    exponentials,
    js_terms,
    probability,
    ratio_and_excess,
)
from offpolicy_monitor.core.gap import chosen
from offpolicy_monitor.core.histogram import Layout, bin_numbers, bins_by
from offpolicy_monitor.core.order import ascending, counts_before, sums_before
from offpolicy_monitor.core.outward import moves_outward
from offpolicy_monitor.core.ragged import products, total
from offpolicy_monitor.core.routing import rerouted, routing_sums
from offpolicy_monitor.core.second_moment import beyond_second_moment
from offpolicy_monitor.core.signature import grid_counts, neighbour_sums, regression_sums
from offpolicy_monitor.methods.rule import Band, Drop

from tests.core.gaps import gap_of_log_ratios, segments

D64 = torch.float64
GAPS = gap_of_log_ratios([[0.5, -0.5], [0.25]], dtype=D64)
ROW = torch.tensor([0.5, -0.5, 0.25])
WIDE = ROW.double()
MARKS = torch.tensor([True, False, True])
OWNERS = torch.tensor([0, 0, 1])
DROPS = Decided(Group((Placed(Drop((Band("log_ratio"),)), 0),), torch.zeros(2, 1, 3, dtype=torch.bool)), None)
LAYOUT = Layout(-24, 8, 5, torch.empty(0))
IDS = np.zeros((2, 3, 4), np.uint8)

#: Arguments that each function takes; tensors among them are spoiled one at a time.
CALLS: dict[Callable[..., Any], tuple[Any, ...]] = {
    above: (WIDE[None], [0.0]),
    ascending: (ROW, GAPS.segments),
    bernoulli: (ROW,),
    beyond_second_moment: (ROW.abs(), MARKS),
    bin_numbers: (ROW, LAYOUT),
    bins_by: ([(LAYOUT, 1), (LAYOUT, 2)], ROW),
    binary_kls: (torch.stack(bernoulli(torch.stack([ROW, ROW]))),),
    chosen: (ROW, [0]),
    difference_terms: (WIDE[None],),
    differences: (ROW.expand(2, -1), [[1, -1]], MARKS[None]),
    drop_terms: (GAPS, DROPS, torch.zeros(2, 1, 2, dtype=D64)),
    exponentials_of: (WIDE[None], MARKS[None]),
    exponentials: (ROW,),
    grid_counts: (ROW[None], ROW[:1]),
    joint_tally: (ROW.expand(2, -1), Layout(-10, 4, 1, torch.empty(0)), MARKS[None]),
    js_terms: (ROW.abs(), torch.expm1(-WIDE.abs())),
    moves_outward: (ROW, Advantages(WIDE[:2], False, GAPS.segments)),
    neighbour_sums: (ROW.expand(2, -1), OWNERS, OWNERS),
    probability: (ROW,),
    products: (WIDE[None],),
    ratio_and_excess: (ROW,),
    regression_sums: (ROW, ROW, -1.0, 0.0),
    rerouted: (IDS, IDS),
    routing_sums: (IDS, IDS, np.ones(2, np.bool_)),
    counts_before: (MARKS, GAPS.segments),
    sums_before: (ROW, GAPS.segments, 1.0),
    signs_of: (ROW,),
    split_sums: (MARKS[None], ROW[None, None], [0]),
    GAPS.segments.sum: (ROW,),
    GAPS.segments.min: (ROW,),
    GAPS.segments.max: (ROW,),
    GAPS.segments.spread: (ROW[:2],),
    token_columns: (ROW.expand(2, 1, -1), MARKS[None], WIDE[:1]),
    total: (ROW,),
    where: (MARKS, ROW, 0.0),
}
#: Those that take no tensor beside gaps and decisions, which are checked where they are made.
WITHOUT_TENSORS = {
    "check", "clip_weights", "constant", "cross_terms", "decide", "differing", "drop_sums",
    "dropped_in_sequences", "extremes", "gaps_of", "is_host", "outward_least", "outward_score", "sequence_scores",
    "sequence_terms", "sums_by_cell", "token_scores", "weight_sums",
}  # fmt: skip
#: Those of mathematics that others have published.
PUBLISHED = (
    exponentials, token_columns, js_terms, binary_kls, beyond_second_moment, bin_numbers, regression_sums,
    neighbour_sums, grid_counts, rerouted, moves_outward, difference_terms,
)  # fmt: skip


def public() -> list[Callable[..., Any]]:
    modules = [
        importlib.import_module(f"{core.__name__}.{module.name}") for module in pkgutil.iter_modules(core.__path__)
    ]
    members = [(module, *member) for module in modules for member in inspect.getmembers(module, inspect.isfunction)]
    return [found for module, name, found in members if found.__module__ == module.__name__ and name[0] != "_"]


def spoiled(value: Any, how: str) -> Any:
    if isinstance(value, list):
        return [spoiled(entry, how) for entry in value]
    if isinstance(value, np.ndarray):
        return value[0] if how == "rank" else value.astype(np.float32)
    return value.reshape(-1)[0] if how == "rank" else value.to(torch.complex64)


def takes_tensors(value: Any) -> bool:
    return isinstance(value[0] if isinstance(value, list) else value, torch.Tensor | np.ndarray)


@pytest.mark.parametrize("function", public(), ids=lambda function: function.__name__)
def test_a_public_function_says_what_it_takes_and_gives(function: Callable[..., Any]) -> None:
    said = inspect.getdoc(function) or ""
    assert function in CALLS or function.__name__ in WITHOUT_TENSORS, "no arguments for it here"
    if function in CALLS:
        assert "[" in said and "Raises" in said, said


@pytest.mark.parametrize("function", PUBLISHED, ids=lambda function: function.__name__)
def test_published_mathematics_names_its_source_by_a_link(function: Callable[..., Any]) -> None:
    said = (inspect.getdoc(function) or "") + (inspect.getmodule(function).__doc__ or "")
    assert "Source" in said and "http" in said, said


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
@pytest.mark.parametrize(("how", "error"), [("rank", ValueError), ("dtype", TypeError)])
def test_a_tensor_of_another_rank_or_dtype_is_refused(
    function: Callable[..., Any], how: str, error: type[Exception]
) -> None:
    arguments = CALLS[function]
    function(*arguments)
    indices = [index for index, value in enumerate(arguments) if takes_tensors(value)]
    assert indices
    for index in indices:
        wrong = spoiled(arguments[index], how)
        with pytest.raises(error):
            function(*arguments[:index], wrong, *arguments[index + 1 :])


def test_expert_ids_of_other_lengths_are_refused_however_many_chunks_they_take() -> None:
    ids = np.zeros((7, 3, 4), np.uint8)
    for other in (ids[:5], ids[:0], ids[:, :2]):
        with pytest.raises((ValueError, TypeError)):
            routing_sums(ids, other)
    with pytest.raises(ValueError, match="chosen"):
        routing_sums(ids, ids, np.ones(5, np.bool_))


def test_values_of_other_lengths_are_refused_by_sequences() -> None:
    for reduce in (GAPS.segments.sum, GAPS.segments.spread):
        with pytest.raises(ValueError, match="values has shape"):
            reduce(torch.zeros(4))
    for found in (ascending, partial(sums_before, most=1.0)):
        with pytest.raises(ValueError, match="values has shape"):
            found(torch.zeros(4), GAPS.segments)
    with pytest.raises(ValueError, match="marks has shape"):
        counts_before(torch.zeros(4, dtype=torch.bool), GAPS.segments)


def test_marks_that_are_not_of_these_rules_and_splits_that_are_not_of_these_bins_are_refused() -> None:
    rules = (Placed(Drop((Band("log_ratio"),)), 0),)
    for shape in ((3,), (1, 1, 3), (2, 2, 3)):
        with pytest.raises(ValueError, match="marks has shape"):
            Group(rules, torch.zeros(shape, dtype=torch.bool))
    with pytest.raises(TypeError, match="marks must be"):
        Group(rules, torch.full((2, 1, 3), 0.5))
    marks = torch.zeros((2, 1, 3), dtype=torch.bool)
    with pytest.raises(ValueError, match="counts has shape"):
        Group(rules, marks, counts=torch.ones((1, 2), dtype=D64))
    with pytest.raises(ValueError, match="no sequences"):
        Group(rules, marks).counted(marks[0])
    with pytest.raises(ValueError, match="splits has shape"):
        Layout(-24, 8, 5, torch.zeros(7))
    with pytest.raises(TypeError, match="splits must be"):
        Layout(-24, 8, 5, torch.zeros(2 * LAYOUT.largest_key + 1, dtype=D64))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"centres": torch.zeros(2, dtype=D64)}, ValueError, "centres has shape"),
        ({"centres": torch.zeros(1)}, TypeError, "centres must be"),
        ({"advantages": Advantages(WIDE[:2], False, segments(1, 2))}, ValueError, "of other sequences"),
        ({"pairs": [(0, 2)]}, IndexError, "of 2 policies"),
        ({"pairs": [(-1, 0)]}, IndexError, "of 2 policies"),
        ({"crossed": (0, 1)}, IndexError, "of 1"),
    ],
)
def test_gaps_of_what_does_not_go_together_are_refused(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    assert replace(GAPS, advantages=Advantages(WIDE[:2], False, segments(2, 1))).number == 1
    with pytest.raises(error, match=words):
        replace(GAPS, **changes)


@pytest.mark.parametrize("indices", [[0, 7], [1, 2], [-1, 0]])
def test_rows_that_are_not_there_are_not_chosen(indices: list[int]) -> None:
    with pytest.raises(IndexError, match="of 2"):
        chosen(torch.zeros(2, 3), indices)


def test_what_is_added_up_by_no_division_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing is divided"):
        Divided({}, [ROW])
