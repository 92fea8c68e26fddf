"""Headline figures of a summary by their paths, without the others: what a step's row and the default rules look at.

Which they are follows from the catalogue; where they stand in what is read off a summary is found once for all
summaries of a kind. They are the same numbers as those among all figures.
"""

from functools import lru_cache
from typing import Final

from offpolicy_monitor.figures import HEADLINE, headline, is_headline, is_known
from offpolicy_monitor.store.rows.derived import wanted_at
from offpolicy_monitor.summary.answer import methods_told
from offpolicy_monitor.summary.form import Form, Told
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


def _flat(told: Told, name: str, below: str | None = None) -> dict[str, float]:
    """The headline figures of an answer that stands at `name`, or of what it has at a key."""
    return {
        path: value for path, value in _form(told.form, name, below).filled(told.values).items() if value is not None
    }


@lru_cache(REMEMBERED)
def _form(form: Form, name: str, below: str | None) -> Form:
    """The same numbers by path."""
    return Form(headline({name: form.shape if below is None else form.shape[below]}), form.counts)
