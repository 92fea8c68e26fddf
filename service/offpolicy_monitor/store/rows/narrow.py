"""Headline figures of a summary by their paths, without the others: what a step's row and the default rules look at.

Which they are follows from the catalogue; where they stand in what is read off a summary is found once for all
summaries of a kind. They are the same numbers as those among all figures.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.figures import HEADLINE, headline, is_headline, is_known
from offpolicy_monitor.store.rows.wanted import wanted_at
from offpolicy_monitor.summary.answer import methods_told, read_for
from offpolicy_monitor.summary.form import Form, Slot, Told
from offpolicy_monitor.summary.records import Read
from offpolicy_monitor.summary.remembered import remembered
from offpolicy_monitor.summary.scheme import REMEMBERED
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.straight import NO_NUMBER, NOT_STRAIGHT
from offpolicy_monitor.summary.tables import KINDS

_CORRECTION: Final = "correction"
#: Whose the correction is, a run says, and only when its step is stored.
_WANTED: Final = wanted_at(tuple(path for path in HEADLINE if not path.startswith(_CORRECTION)))
#: Tables that some of them are read off one by one.
_TABLES: Final = ("batch", "cross", *(path for kind in KINDS for path in kind.looked_at))
_OF_CORRECTION: Final = wanted_at(tuple(path for path in HEADLINE if path.startswith(_CORRECTION)))


def ready(summary: StepSummary) -> Mapping[str, float]:
    """Let the summary have its headline figures made, whatever the correction of its run; not to be changed."""
    return summary.once(_headline)


def take(summary: StepSummary, made: Mapping[str, float]) -> None:
    """Let it have those that were made of an equal summary."""
    summary.take(_headline, dict(made))


def headline_of(summary: StepSummary, correction: str | None) -> dict[str, float]:
    """The headline figures that are present, by path; `correction` names the row in use."""
    found = summary.once(_headline).copy()
    if correction is not None and (spec := summary.specs.get(correction)) is not None:
        found |= _flat(methods_told(summary.arrays, {correction: spec}, _OF_CORRECTION), _CORRECTION, correction)
    return found


def _headline(summary: StepSummary) -> dict[str, float]:
    """Those of no correction."""
    summary.arrays.read_ahead(_TABLES)
    found = headline(summary.in_dicts(_WANTED))
    try:
        straight = None if summary.has_rows else _straight_of(summary)
        if straight is not None:
            return found | _finite(straight.paths, straight.read(summary.arrays))
    except NO_NUMBER:
        pass
    for name, told in summary.in_rows(_WANTED).items():
        found |= _flat(told, name)
    return found


class _Straight(NamedTuple):
    """Which figures of gaps and method rows there are, by path, and how they are read."""

    paths: Sequence[str]
    read: Read


def _straight_of(summary: StepSummary) -> _Straight | None:
    """That of all summaries of this kind, of which the first is read as it stands; None where all must be.

    Raises NO_NUMBER for a first that does not tell which figures there are: some gap or row has no token.
    """
    arrays, specs = summary.arrays, summary.specs
    key = ("headline", arrays.scheme.base, arrays.scheme.begins, arrays.absent, tuple(specs))
    return remembered(key, specs.values(), lambda: _made_straight(summary))


def _made_straight(summary: StepSummary) -> _Straight | None:
    told = summary.in_rows(_WANTED)
    if not all(rows.form.shape for rows in told.values()):
        return None
    if any((rows.values[: len(rows.form.shape)] == 0).any() for rows in told.values()):  # their tokens come first
        raise ZeroDivisionError
    positions = {name: _positions(rows.form, name, None) for name, rows in told.items()}
    chosen = [(of_rows.indices.tolist(), told[name].form.counts) for name, of_rows in positions.items()]
    try:
        read = read_for(summary.arrays, summary.gap_names, summary.specs, _WANTED, *chosen)
    except NOT_STRAIGHT:
        return None
    return _Straight([path for of_rows in positions.values() for path in of_rows.paths], read)


@lru_cache(REMEMBERED)
def covers(paths: tuple[str, ...]) -> bool:
    """Whether all figures at these paths are headline figures."""
    return all(is_headline(path) or not is_known(path) for path in paths)


class _Positions(NamedTuple):
    """Where the headline figures of an answer stand in its row, by path; those of `counts` are whole.

    Figures of `fixed` are the same in all answers of its form.
    """

    fixed: dict[str, float]
    paths: Sequence[str]
    indices: NDArray[np.intp]
    counts: Sequence[str]


def _flat(told: Told, name: str, below: str | None = None) -> dict[str, float]:
    """The headline figures of an answer that stands at `name`, or of what it has at a key."""
    fixed, paths, indices, counts = _positions(told.form, name, below)
    found = fixed | _finite(paths, told.values[indices].tolist())
    return found | {path: int(found[path]) for path in counts if path in found}


def _finite(paths: Sequence[str], numbers: Sequence[float]) -> dict[str, float]:
    """Those that JSON can hold."""
    return {path: value for path, value in zip(paths, numbers, strict=True) if value - value == 0.0}


@lru_cache(REMEMBERED)
def _positions(form: Form, name: str, below: str | None) -> _Positions:
    found = headline({name: form.shape if below is None else form.shape[below]})
    slots = {path: slot for path, slot in found.items() if isinstance(slot, Slot)}
    fixed = {path: value for path, value in found.items() if path not in slots}
    counts = [path for path, slot in slots.items() if slot in form.counts]
    return _Positions(fixed, tuple(slots), np.array([*slots.values()], np.intp), counts)
