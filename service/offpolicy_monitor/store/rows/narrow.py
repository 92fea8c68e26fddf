"""Headline figures of a summary by their paths, without the others: what a step's row and the default rules look at.

Which they are follows from the catalogue; where they stand in what is read off a summary is found once for all
summaries of a kind. They are the same numbers as those among all figures.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.figures import HEADLINE, headline, is_headline, is_known
from offpolicy_monitor.store.rows.derived import wanted_at
from offpolicy_monitor.summary.answer import methods_told
from offpolicy_monitor.summary.form import Form, Slot, Told
from offpolicy_monitor.summary.scheme import REMEMBERED
from offpolicy_monitor.summary.step import StepSummary

_CORRECTION: Final = "correction"
#: Whose the correction is, a run says, and only when its step is stored.
_WANTED: Final = wanted_at(tuple(path for path in HEADLINE if not path.startswith(_CORRECTION)))
_OF_CORRECTION: Final = wanted_at(tuple(path for path in HEADLINE if path.startswith(_CORRECTION)))


def ready(summary: StepSummary) -> None:
    """Let the summary have made what its headline figures are read off, whatever the correction of its run."""
    summary.in_dicts(_WANTED)
    summary.in_rows(_WANTED)


def headline_of(summary: StepSummary, correction: str | None) -> dict[str, float]:
    """The headline figures that are present, by path; `correction` names the row in use."""
    found = headline(summary.in_dicts(_WANTED))
    for name, told in summary.in_rows(_WANTED).items():
        found |= _flat(told, name)
    if correction is not None and (spec := summary.specs.get(correction)) is not None:
        found |= _flat(methods_told(summary.arrays, {correction: spec}, _OF_CORRECTION), _CORRECTION, correction)
    return found


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
    numbers = zip(paths, told.values[indices].tolist(), strict=True)
    found = fixed | {path: value for path, value in numbers if value - value == 0.0}  # what JSON can hold
    return found | {path: int(found[path]) for path in counts if path in found}


@lru_cache(REMEMBERED)
def _positions(form: Form, name: str, below: str | None) -> _Positions:
    found = headline({name: form.shape if below is None else form.shape[below]})
    slots = {path: slot for path, slot in found.items() if isinstance(slot, Slot)}
    fixed = {path: value for path, value in found.items() if path not in slots}
    counts = [path for path, slot in slots.items() if slot in form.counts]
    return _Positions(fixed, tuple(slots), np.array([*slots.values()], np.intp), counts)
