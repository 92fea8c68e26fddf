"""A scenario played: healthy steps, the fault from its onset on, every step measured, and what was told when.

A person who is told looks at the steps since shortly before the alert: those are diagnosed. Seeded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from offpolicy_monitor.diagnosis import collect, diagnose
from offpolicy_monitor.server.limits import mismatch_limits
from offpolicy_monitor.summary.step import StepSummary

from tests.detection.judged import Row, Verdict, judged, row_of, summary_of, terms_of
from tests.detection.scenarios import ONSET, STRENGTHS, Scenario
from tests.detection.state import Run, State
from tests.detection.steps import make_step

#: Steps before the onset that a diagnosis looks at too: so many tell a jump from how a run begins.
BEFORE: Final = 6
#: Steps with the fault that it looks at, at least.
LOOKED_AT: Final = 10
Step = tuple[StepSummary, Row]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was told of one played scenario: verdicts that were active, and the diagnosis `diagnosed` steps in."""

    scenario: Scenario
    strength: str
    verdicts: Sequence[Verdict]
    diagnosis: str | None
    diagnosed: int
    rows: Sequence[Row] = ()

    def first(self, severity: str, alerts: Sequence[str] | None = None) -> int | None:
        """Steps from the onset to the first of its own alerts (or of `alerts`) of a severity."""
        names = self.scenario.alerts if alerts is None else alerts
        steps = [v.first(ONSET) for v in self.verdicts if v.severity == severity and v.rule in names]
        return min((step for step in steps if step is not None), default=None)

    @property
    def named(self) -> int | None:
        """Steps from the onset to the first of its own alerts, of whatever severity."""
        return min((step for severity in ("warning", "critical") if (step := self.first(severity))), default=None)

    @property
    def in_time(self) -> bool:
        """Whether its own alert came in the steps that the scenario allows; where it has none, whether none came."""
        if not self.scenario.alerts:
            return not any(verdict.active[ONSET:].any() for verdict in self.verdicts)
        crossed = self.scenario.crossed(self.size)
        return self.named is not None and self.named <= crossed + self.scenario.within

    @property
    def size(self) -> float:
        """The size of the fault."""
        return self.scenario.sizes[STRENGTHS.index(self.strength)]


def play(scenario: Scenario, strength: str, seed: int) -> Outcome:
    """Play one scenario."""
    size = scenario.sizes[STRENGTHS.index(strength)]
    before = _healthy(scenario.run, scenario.first, seed)
    after = [
        _step(scenario.run, scenario.change(scenario.first, step, size), seed, ONSET + step)
        for step in range(scenario.lasts)
    ]
    rows = [row for _, row in (*before, *after)]
    verdicts = judged(rows, terms_of(scenario.run.profile, scenario.run.method))
    outcome = Outcome(scenario, strength, verdicts, None, 0, rows)
    told = max(outcome.named or scenario.lasts, LOOKED_AT)
    summaries = [summary for summary, _ in (*before[-BEFORE:], *after[:told])]
    return replace(outcome, diagnosis=_diagnosis(summaries, scenario.run.profile), diagnosed=told)


def _diagnosis(summaries: Sequence[StepSummary], profile: str) -> str | None:
    found = diagnose(collect(summaries, limits=mismatch_limits(profile, {})))
    return str(found[0]["name"]) if found else None


@lru_cache(maxsize=8)
def _healthy(run: Run, first: State, seed: int) -> list[Step]:
    """The steps before an onset, which all strengths and most scenarios of a seed share."""
    return [_step(run, first, seed, step) for step in range(ONSET)]


def _step(run: Run, state: State, seed: int, step: int) -> Step:
    source = np.random.default_rng([seed, step])
    noisier = replace(state, scale=state.scale * float(np.exp(0.05 * source.standard_normal())))
    summary = summary_of(make_step(run, noisier, step, source), run.method)
    return summary, row_of(summary, step, run.method)
