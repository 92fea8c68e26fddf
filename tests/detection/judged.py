"""Steps measured by the service's measurer, and judged by its rules: which were active at which step of a run.

Rules look back alone, so one history of a whole run tells what evaluating them at each step would; that the two agree
is tested. It knows no scenario.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from offpolicy_monitor.alerts import RULES, History, Rule, Severity, Terms, paths_of
from offpolicy_monitor.alerts.breaches import lasts, value_at
from offpolicy_monitor.figures import at_each, with_correction
from offpolicy_monitor.methods import PRESETS, MethodRow
from offpolicy_monitor.store.rows.wanted import figures_for
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.detection.steps import Part
from tests.fixtures.fused import fused_measurer

Row = dict[str, float]
_measurer: Final = cache(fused_measurer)
_PRESETS: Final = {preset.name: preset for preset in PRESETS}
_LOOKED_AT: Final = paths_of(RULES)


@dataclass(frozen=True, eq=False)
class Verdict:
    """A severity of a rule over a run: values [n] as compared, and the steps [n] at which it was active."""

    rule: str
    severity: Severity
    values: NDArray[np.float64]
    active: NDArray[np.bool_]

    @property
    def episodes(self) -> int:
        """How often it became active."""
        return int((self.active & ~np.append(False, self.active[:-1])).sum())

    def first(self, onset: int) -> int | None:
        """Steps from the onset to the first that it was active at, the onset's own step being the first."""
        found = np.flatnonzero(self.active[onset:])
        return int(found[0]) + 1 if len(found) else None


def summary_of(parts: Iterable[Part], method: str | None = None) -> StepSummary:
    """The merged summary of a gradient step, with what the method in use does to it."""
    rows: tuple[MethodRow, ...] = (_PRESETS[method],) if method else ()
    return merge_all([_measurer().measure(batch, rows, origin, worst=False) for batch, origin in parts])


def row_of(summary: StepSummary, version: int, method: str | None = None) -> Row:
    """What the store keeps of a step for rules to look at."""
    figures = with_correction(figures_for(summary, _LOOKED_AT), method)
    return at_each({**figures, "policy_version": version}, _LOOKED_AT)


def terms_of(profile: str, method: str | None) -> Terms:
    """The terms of a run that has chosen nothing but its profile and its method."""
    if method is None:
        return Terms(profile)
    return Terms(profile, method if method in ("gspo", "grpo") else _level(_PRESETS[method]))


def judged(rows: Sequence[Row], terms: Terms, rules: Iterable[Rule] = RULES) -> list[Verdict]:
    """Every severity of every rule over the steps of a run."""
    history = History.of(list(enumerate(rows)), _LOOKED_AT)
    return [verdict for rule in rules for verdict in _verdicts(rule, history, terms)]


def _verdicts(rule: Rule, history: History, terms: Terms) -> Iterator[Verdict]:
    steps, limits = range(len(history.steps)), terms.limits(rule)
    values = np.array([value_at(rule, history, terms, index) for index in steps])
    for severity in rule.severities:
        limit = limits.get(severity)
        lasting = [limit is not None and lasts(rule, limit, history, terms, index) for index in steps]
        yield Verdict(rule.name, severity, values, np.array(lasting, np.bool_))


def _level(row: MethodRow) -> str:
    return "token" if row.level in (None, "token") else "sequence"
