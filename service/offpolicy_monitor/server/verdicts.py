"""Verdicts: joins what the store knows of a run with its diagnosis, and with what its masks drop, to one sentence.

A diagnosis reads fifty summaries, some tenths of a second. So a list of runs, which wants many sentences at once, takes
the cause that was found for the same breach some steps before, and has few found anew.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from offpolicy_monitor.alerts import RULES, Rule
from offpolicy_monitor.diagnosis import collect, diagnose
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.methods import METHODS
from offpolicy_monitor.server.baselines import BASELINE
from offpolicy_monitor.server.limits import mismatch_limits
from offpolicy_monitor.store import RunView, Store, Table
from offpolicy_monitor.summary.recommend import Sample, preset_states, recommend
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.verdict import PATHS, Breach, Cause, Facts, Masks, Window, of_root, onset, say
from offpolicy_monitor.vocabulary import STANDARD_METHOD

#: The newest steps that a diagnosis and the masked shares are of, as in their own routes.
MOST_STEPS: Final = 50
#: Steps for which a cause is taken to stand in lists, and causes that one list has found anew.
STANDS_FOR: Final = 25
MOST_SOUGHT: Final = 1
#: Steps before a breach with which staleness is compared.
BEFORE: Final = 30
#: Causes kept.
MOST_KEPT: Final = 1024
#: The method whose threshold every sentence tells, and the share of the tokens that it may drop.
TOLD: Final = METHODS[STANDARD_METHOD]
TARGET: Final = 0.01
_RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in RULES}


@dataclass(frozen=True)
class Found:
    """The likeliest cause of a breach that began at `since`, as of the run's step `at`."""

    since: int
    at: int
    cause: Cause | None


class Verdicts:
    """Sentences about runs of a store. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: OrderedDict[int, Found] = OrderedDict()
        self._told: OrderedDict[int, tuple[tuple[Any, ...], Mapping[str, Any]]] = OrderedDict()
        self._lock, self._seeking = threading.Lock(), threading.Lock()

    def read(self, run: str) -> dict[str, Any]:
        """All that is said of a run now, and of nothing older; Refusal 404 where there is none."""
        view = self._store.view_run(run)
        facts = self._facts(view)
        return say(view.shown["verdict"], replace(facts, **self._read(view, facts))).answer()

    def _read(self, view: RunView, facts: Facts) -> Mapping[str, Any]:
        """The fields of Facts that summaries tell; read once of what is stored, however many ask."""
        under = view.overview.version, view.shown["correction"], view.shown["profile"], view.overrides, _since(facts)
        with self._lock:
            known = self._told.get(view.id)
        if known is None or known[0] != under or not view.overview.has_revision:
            summaries = [summary for _, _, summary in self._store.summaries(view.shown["run"], most=MOST_STEPS)]
            told: dict[str, Any] = {"masks": masks(summaries, view.shown["correction"])}
            if _since(facts) is not None:
                told["cause"] = self._search(view, facts)
            known = under, told
            with self._lock:
                self._told[view.id] = known
                self._told.move_to_end(view.id)
                while len(self._told) > MOST_KEPT:
                    self._told.popitem(last=False)
        return known[1]

    def message(self, row: Mapping[str, Any], page: str) -> str | None:
        """What an alert says to people: where it is active and speaks for itself, what the run comes to by it and by
        its `evidence`, as long as one of them breaches; else what its rule said last. A cause that is not known is
        found.
        """
        try:
            view = self._store.view_run(row["run"]) if _speaks(row) else None
            return self._message(row, view, page, seek=True)
        except Refusal:  # deleted meanwhile
            return self._message(row, None, page)

    def messages(self, rows: Sequence[Mapping[str, Any]], pages: Sequence[str]) -> list[str | None]:
        """The same of alerts of many runs, which are read together; no cause is sought."""
        views = self._store.views_of({row["run"] for row in rows if _speaks(row)})
        return [self._message(row, views.get(row["run"]), page) for row, page in zip(rows, pages, strict=True)]

    def _message(self, row: Mapping[str, Any], view: RunView | None, page: str, seek: bool = False) -> str | None:
        own: str | None = row["message"]
        if row["state"] == "active" and row["quiet_since"] is not None:
            own = f"{own or ''} Quiet since step {row['quiet_since']}.".lstrip()
        if view is None or not _speaks(row):
            return own
        facts = self._with_cause(view, self._facts(view), seek)
        of_it = {row["alert"], *row["evidence"]}
        breaches = tuple(breach for breach in facts.breaches if breach.alert in of_it)
        if not breaches and row["quiet_since"] is not None:
            return own
        facts = replace(facts, breaches=breaches, state="live" if breaches else facts.state)
        return of_root(say(view.shown["verdict"], facts), own or "", row["evidence"], page)

    def _with_cause(self, view: RunView, facts: Facts, seek: bool) -> Facts:
        """With the cause that was found lately; else with the one that is found now, and what masks drop."""
        since = _since(facts)
        if since is None:
            return facts
        known = self._known(view, facts, since)
        if known is not None or not seek:
            return replace(facts, searched=known is not None, cause=None if known is None else known.cause)
        summaries = [summary for _, _, summary in self._store.summaries(view.shown["run"], most=MOST_STEPS)]
        dropped = masks(summaries, view.shown["correction"])
        return replace(facts, cause=self._search(view, facts), masks=dropped)

    def with_summaries(self, views: Sequence[RunView]) -> list[dict[str, Any]]:
        """Runs as they are answered, with what is said of each, but for what to do, which takes more reading."""
        found, left = [], MOST_SOUGHT
        for view in views:
            facts = self._facts(view)
            since = _since(facts)
            if since is not None:
                known = self._known(view, facts, since)
                # Lists that are asked for at once leave it to one of them.
                if known is None and left > 0 and self._seeking.acquire(blocking=False):
                    left -= 1
                    try:
                        facts = replace(facts, cause=self._search(view, facts))
                    finally:
                        self._seeking.release()
                else:
                    facts = replace(facts, searched=known is not None, cause=None if known is None else known.cause)
            answer = say(view.shown["verdict"], facts).answer()
            del answer["action"]
            found.append({**view.shown, "spark": _spark(view, facts), "summary": answer})
        return found

    def _facts(self, view: RunView) -> Facts:
        shown, overview = view.shown, view.overview
        facts = Facts(
            state=shown["state"],
            last_step=shown["last_step"] if shown["last_step"] is not None else 0,
            steps=shown["steps"],
            last_batch_at=view.last_batch_at,
            now=view.now,
            step_seconds=overview.step_seconds,
            breaches=tuple(_breaches(view.open_alerts)),
            start=_window(overview.first[BASELINE]),
            newest=_window(overview.newest),
            threshold=_threshold(overview.states),
        )
        rows = facts.of("mismatch")
        if not rows or facts.state != "live":
            return facts
        since = onset(rows)
        before = self._store.window(view.id, max(0, since - BEFORE), since - 1) if since else None
        return facts if before is None else replace(facts, before=_window(before))

    def _known(self, view: RunView, facts: Facts, since: int) -> Found | None:
        with self._lock:
            found = self._found.get(view.id)
        stands = found is not None and found.since == since and 0 <= facts.last_step - found.at < STANDS_FOR
        return found if stands else None

    def _search(self, view: RunView, facts: Facts) -> Cause | None:
        summaries = [summary for _, summary in self._store.whole_summaries(view.shown["run"], most=MOST_STEPS)]
        evidence = collect(summaries, limits=mismatch_limits(view.shown["profile"], view.overrides))
        ranked = diagnose(evidence, view.shown["profile"] == "bitwise")
        cause = Cause(*(ranked[0][name] for name in ("name", "title", "score", "try"))) if ranked else None
        since = _since(facts)
        with self._lock:
            if since is not None:
                self._found[view.id] = Found(since, facts.last_step, cause)
                self._found.move_to_end(view.id)
            while len(self._found) > MOST_KEPT:
                self._found.popitem(last=False)
        return cause


def masks(summaries: Sequence[StepSummary], correction: str | None) -> Masks:
    """What the correction in use and the standard method have dropped of these steps, and where that drops 1 %."""
    sample = Sample(summaries)
    rows = {row["name"]: row for row in preset_states(sample, (correction, TOLD.name))}
    used, told = rows.get(correction or ""), rows.get(TOLD.name)
    gap, level = TOLD.gap, TOLD.levels[0]
    [(parameter, curve)] = TOLD.forms[level, TOLD.variants(level)[0]].kept.items()
    advice = recommend(sample, gap, curve, TARGET)
    return Masks(
        correction=correction,
        dropped=None if used is None else _dropped(used),
        standard=TOLD.title or TOLD.name,
        standard_dropped=None if told is None else _dropped(told),
        standard_threshold=None if told is None else told[parameter],
        one_percent=None if advice is None else advice["threshold"],
    )


def _speaks(alert: Mapping[str, Any]) -> bool:
    """Whether an alert is active and speaks for itself."""
    return bool(alert["state"] == "active" and alert["inhibited_by"] is None)


def _dropped(row: Mapping[str, Any]) -> float | None:
    """The share of the tokens that a row masks; None of one that reweights."""
    share: float | None = row.get("masked_token_fraction")
    return share


def _spark(view: RunView, facts: Facts) -> dict[str, Any] | None:
    """The run's spark with the threshold that it is judged by."""
    spark = view.shown["spark"]
    return None if spark is None else {**spark, "limit": facts.threshold}


def _since(facts: Facts) -> int | None:
    """Since when there has been something to find the cause of; None where there is nothing."""
    rows = facts.of("mismatch", "total", "data")
    return onset(rows) if rows and facts.state == "live" else None


def _breaches(alerts: Sequence[Mapping[str, Any]]) -> list[Breach]:
    """Alerts on steps that are not pending and not quiet, of a severity that advises something."""
    return [
        Breach(
            alert=row["alert"],
            severity=row["severity"],
            since_step=row["since_step"],
            judged=None if row["alert"] not in _RULES else _RULES[row["alert"]].half,
            value=row["value"],
            threshold=row["threshold"],
            summary="" if row["alert"] not in _RULES else _RULES[row["alert"]].summary,
        )
        for row in alerts
        if row["state"] != "pending"
        and row["severity"] in ("warning", "critical")
        and row["since_step"] is not None
        and row["quiet_since"] is None
    ]


def _window(table: Table) -> Window:
    columns = [[None if value != value else value for value in column] for column in table.figures.tolist()]
    return Window(table.steps.tolist(), dict(zip(PATHS, columns, strict=True)))


def _threshold(states: Sequence[Mapping[str, Any]]) -> float | None:
    """The first threshold of mismatch k3, as the run is judged by."""
    for state in states:
        if (state["alert"], state["severity"]) == ("MismatchKL", "warning"):
            threshold: float | None = state.get("threshold")
            return threshold
    return None
