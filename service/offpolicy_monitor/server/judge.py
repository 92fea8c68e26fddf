"""RulesJudge: the rules of alerts as the judge that the store asks. The one place that joins both to judge.

It turns a run's row into the terms it is judged by, and rows of alerts into episodes and back.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from offpolicy_monitor.alerts import RULES, Episode, History, Rule, Terms, Timing, of_all, paths_of
from offpolicy_monitor.alerts.engine import has_total_alone
from offpolicy_monitor.alerts.judge import judge_steps, judge_timing
from offpolicy_monitor.alerts.roots import roots_of, with_roots
from offpolicy_monitor.methods import PRESETS, MethodRow, restored
from offpolicy_monitor.server.states import all_shown
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.histories import RunHistory
from offpolicy_monitor.store.write.judge import Judge, States

FIELDS: Final = tuple(Episode.__dataclass_fields__)


@dataclass(frozen=True)
class RulesJudge(Judge):
    """Judges by `rules` on steps, and by those on the wall clock."""

    rules: Sequence[Rule] = RULES

    @cached_property
    def paths(self) -> Sequence[str]:
        """The figures that the rules look at."""
        return paths_of(self.rules)

    @cached_property
    def of_all(self) -> Collection[str]:
        """Those of them that are of all gradient steps."""
        return of_all(self.paths)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(rule.name for rule in self.rules)

    def steps(
        self, run: HeldRun, history: RunHistory, before: Sequence[Mapping[str, Any]]
    ) -> tuple[States, list[Mapping[str, Any]]]:
        """Judge the newest step; episodes of rules on the wall clock remain as they are."""
        open_ = [_episode(row) for row in before]
        terms = _terms_under(run, history)
        seen = History(history.steps, history.columns, history.noted)
        judged, after = judge_steps(seen, terms, open_, self.rules)
        # Most runs have no alert, and nothing to place.
        placed = with_roots(after.values(), history.steps[-1], has_total_alone(seen)) if after else []
        active, roots = {episode.key: episode for episode in placed if episode.state == "active"}, roots_of(placed)
        return all_shown(judged, active, roots), _rows(self._names, open_, placed)

    def timing(
        self,
        run: HeldRun,
        step_seconds: float | None,
        silence: float,
        open_for: float | None,
        before: Sequence[Mapping[str, Any]],
    ) -> list[Mapping[str, Any]]:
        """Judge by the wall clock; episodes of rules on steps remain as they are."""
        open_ = [_episode(row) for row in before]
        names, after = judge_timing(Timing(step_seconds, silence, open_for), terms_of(run), open_)
        return _rows(names, open_, with_roots(after.values(), None))


def _terms_under(run: HeldRun, history: RunHistory) -> Terms:
    """What the run is judged by; where that is not what was noted under, the notes go."""
    settings = (run.profile, run.correction, run.methods, run.overrides, run.length_cap)
    if history.terms is None or history.terms[0] != settings:
        history.noted.clear()
        history.terms = settings, terms_of(run)
    terms: Terms = history.terms[1]
    return terms


def terms_of(run: HeldRun) -> Terms:
    """What the run is judged by."""
    return Terms(run.profile, correction_kind(run.correction, run.methods), run.overrides or {}, run.length_cap)


def correction_kind(name: str | None, chosen: Sequence[Mapping[str, Any]] | None) -> str | None:
    """The kind of the method row of this name among those that run; None where there is none."""
    rows: Sequence[MethodRow] = PRESETS if chosen is None else restored(chosen)
    row = next((row for row in rows if row.name == name), None)
    return None if row is None else row.method.kind(row.level)


def _episode(row: Mapping[str, Any]) -> Episode:
    return Episode(**{name: row[name] for name in FIELDS})


def _rows(judged: Set[str], before: Iterable[Episode], after: Iterable[Episode]) -> list[Mapping[str, Any]]:
    """The episodes that remain: what was judged, and those of other rules as they were."""
    others = [episode for episode in before if episode.alert not in judged]
    return [vars(episode) for episode in (*others, *after)]
