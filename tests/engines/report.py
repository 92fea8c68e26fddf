"""What was seen as Markdown: a table for each engine, and what healthy runs were told of."""

from collections.abc import Iterator, Sequence

from offpolicy_monitor.demo.engines.kinds import ENGINES

from tests.detection.report import of_plays
from tests.engines.outcome import Outcome, Told

HEAD = "| planted | k3 before | k3 after | first alert | critical | told of by | named in the end | right since |"


def tables(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """All lines of the report."""
    for kind in ENGINES.values():
        rows = [outcome for outcome in outcomes if outcome.engine == kind.name]
        if rows:
            yield from (f"### {kind.title}", "", HEAD, "|" + "---|" * HEAD.count(" | ") + "---|")
            yield from map(row, rows)
            yield ""
    yield from verdict(outcomes)


def row(outcome: Outcome) -> str:
    """One run."""
    named = f"`{outcome.last.name}` ({outcome.last.score:.2f})"
    cells = (
        f"{outcome.planted}{_within(outcome.internal)}",
        _nats(outcome.k3_before),
        _nats(outcome.k3_after),
        _alert(outcome.first(), outcome.onset),
        _alert(outcome.first("critical"), outcome.onset),
        _names(outcome.messages) or "none",
        named if outcome.last.name in outcome.right else f"{named}; right is {_names(outcome.right)}",
        "never" if outcome.since is None else str(outcome.since - outcome.onset + 1),
    )
    return f"| {' | '.join(cells)} |"


def verdict(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """How many were told of and named, and what was told without a reason."""
    wanted = [outcome for outcome in outcomes if outcome.wanted]
    calm = [outcome for outcome in outcomes if not outcome.wanted]
    told, right = (
        of_plays(sum(map(bool, found)), len(wanted))
        for found in ([o.first() for o in wanted], [o.since is not None for o in wanted])
    )
    yield f"- Faults: an alert for {told}, the right diagnosis in the end for {right}."
    faulty = [told for outcome in wanted for told in outcome.false]
    quiet = [told for outcome in calm for told in outcome.alerts]
    yield f"- Before their onset, in {sum(o.onset for o in wanted)} steps: {_counted(faulty)}."
    steps = sum(outcome.steps for outcome in calm)
    yield f"- Healthy runs: {len(calm)} with {steps} steps: {_counted(quiet)}."


def _counted(alerts: Sequence[Told]) -> str:
    if not alerts:
        return "no alert"
    severities = [told.severity for told in alerts]
    names = _names(sorted({told.alert for told in alerts}))
    return f"{severities.count('critical')} critical, {severities.count('warning')} warnings ({names})"


def _alert(told: Told | None, onset: int) -> str:
    return "none" if told is None else f"{told.step - onset + 1}: `{told.alert}`"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _within(internal: float | None) -> str:
    return "" if internal is None else f": {internal:.0%} within the engine"


def _nats(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
