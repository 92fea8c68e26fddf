"""What was measured as Markdown: a table of scenarios, a table of false alarms, and whether the goals are met.

Shares of plays and rates of false alarms stand with their exact intervals of 95 %.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from offpolicy_monitor.alerts import RULES

from tests.detection.false_alarms import Counted
from tests.detection.intervals import rate, share
from tests.detection.scenarios import STRENGTHS, Scenario

NEVER: Final = "never"


@dataclass(frozen=True)
class Seen:
    """What one played scenario comes down to: steps from its onset to its own alert by severity, and the diagnosis."""

    scenario: str
    strength: str
    warning: int | None
    critical: int | None
    in_time: bool
    diagnosis: str | None


def scenario_table(scenarios: Sequence[Scenario], seen: Sequence[Seen]) -> Iterator[str]:
    """One row a scenario and strength; of several seeds the slowest counts."""
    yield "| scenario | own alert | strength | to warning | to critical | allowed | in time (95 %) | diagnosis |"
    yield "|---|---|---|---|---|---|---|---|"
    for scenario in scenarios:
        for strength, size in zip(STRENGTHS, scenario.sizes, strict=True):
            rows = [row for row in seen if (row.scenario, row.strength) == (scenario.name, strength)]
            if rows:
                yield _scenario_row(scenario, strength, size, rows)


def _scenario_row(scenario: Scenario, strength: str, size: float, rows: Sequence[Seen]) -> str:
    names = [row.diagnosis or "nothing" for row in rows]
    diagnoses = ", ".join(f"`{name}` {names.count(name)}" for name in sorted(set(names), key=names.count, reverse=True))
    cells = (
        f"`{scenario.name}`",
        ", ".join(f"`{alert}`" for alert in scenario.alerts) or "none: all are to be quiet",
        f"{strength} ({size:g})",
        _slowest(row.warning for row in rows),
        _slowest(row.critical for row in rows),
        str(scenario.crossed(size) + scenario.within),
        of_plays(sum(row.in_time for row in rows), len(rows)),
        diagnoses,
    )
    return f"| {' | '.join(cells)} |"


def of_plays(hits: int, of: int, unit: str = "", interval: str = "") -> str:
    """`4 of 5 (28 to 99 %)`."""
    least, most = share(hits, of)
    return f"{hits} of {of}{unit} ({interval}{100 * least:.0f} to {100 * most:.0f} %)"


def per_thousand(hits: int, steps: int) -> str:
    """`0.00 to 0.28`: the rate of so many episodes in healthy steps."""
    least, most = rate(hits, steps / 1000)
    return f"{least:.2f} to {most:.2f}"


def _slowest(steps: Iterable[int | None]) -> str:
    """`usual / slowest` of several seeds."""
    known = sorted(step if step is not None else 10**9 for step in steps)
    usual, slowest = known[(len(known) - 1) // 2], known[-1]
    texts = [NEVER if step == 10**9 else str(step) for step in (usual, slowest)]
    return texts[0] if texts[0] == texts[1] else " / ".join(texts)


def false_alarm_table(counted: Counted) -> Iterator[str]:
    """One row per severity of a rule that had any, and one for those that had none."""
    yield f"{counted.steps:,} healthy steps in {counted.runs} runs."
    yield ""
    yield "| rule | severity | episodes | per 1,000 steps (95 %) | runs with one |"
    yield "|---|---|---|---|---|"
    for (rule, severity), number in counted.episodes.most_common():
        runs, usual = len(counted.seeds[rule, severity]), counted.per_thousand((rule, severity))
        yield f"| `{rule}` | {severity} | {number} | {usual:.2f} ({per_thousand(number, counted.steps)}) | {runs} |"
    noisy = {rule for rule, _ in counted.episodes}
    quiet = [f"`{rule.name}`" for rule in RULES if rule.name not in noisy]
    yield f"| {', '.join(quiet)} | all | 0 | 0 ({per_thousand(0, counted.steps)}) | 0 |"


def verdict(scenarios: Sequence[Scenario], seen: Sequence[Seen], counted: Counted) -> Iterator[str]:
    """The goals, and what misses them."""
    medium = [row for row in seen if row.strength == "medium"]
    planted = [row for row in medium if _expected(scenarios, row)]
    late = [row for row in medium if not row.in_time]
    wrong = [row for row in planted if row.diagnosis != _expected(scenarios, row)]
    yield f"- Named in time at medium strength: {_all_but(late, medium)}."
    yield f"- Diagnosed as planted at medium strength: {_all_but(wrong, planted)}."
    warnings, criticals = counted.of("warning"), counted.of("critical")
    allowed, rates = counted.steps // 10_000, [per_thousand(hits, counted.steps) for hits in (criticals, warnings)]
    yield (
        f"- False alarms: {criticals} critical (goal 0), {warnings} warnings (goal at most {allowed}); "
        f"per 1,000 steps {rates[0]} and {rates[1]} (95 %)."
    )


def _all_but(missed: Sequence[Seen], rows: Sequence[Seen]) -> str:
    """`all but spike: 84 of 90 plays (95 %: 86 to 98 %)`."""
    names = sorted({row.scenario for row in missed})
    said = "all" if not names else "all but " + ", ".join(names)
    if not rows:
        return said
    return f"{said}: {of_plays(len(rows) - len(missed), len(rows), ' plays', '95 %: ')}"


def _expected(scenarios: Sequence[Scenario], row: Seen) -> str | None:
    return next(scenario.diagnosis for scenario in scenarios if scenario.name == row.scenario)
