"""What was found as Markdown: a row for each fault and database, then what was broken, measured and skipped."""

from collections.abc import Iterator, Sequence

from tests.chaos.scenario import Outcome

HEAD = "| fault | database | trials | acknowledged | lost | doubled | wrong | recovery (s) |"
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The faults, then the controls, which are to lose, double or spoil something."""
    yield HEAD
    yield "|" + "---|" * HEAD.count(" | ") + "---|"
    for outcome in sorted(outcomes, key=lambda outcome: outcome.control):
        yield row(outcome)


def row(outcome: Outcome) -> str:
    """One fault on one database."""
    name = f"control: {outcome.scenario}" if outcome.control else outcome.scenario
    counts = (outcome.trials, outcome.acknowledged, outcome.lost, outcome.doubled, outcome.wrong)
    cells = [f"{number:,}" for number in counts] if not outcome.skipped else ["skipped", "", "", "", ""]
    return f"| {' | '.join([name, NAMES[outcome.database], *cells, recovery(outcome.recovery)])} |"


def recovery(seconds: Sequence[float]) -> str:
    """`0.4`, or `0.4 (at most 1.2)` of several."""
    if not seconds:
        return ""
    ordered = sorted(seconds)
    usual, slowest = ordered[(len(ordered) - 1) // 2], ordered[-1]
    return f"{usual:.1f}" if len(ordered) == 1 else f"{usual:.1f} (at most {slowest:.1f})"


def notes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each measured figure, skipped scenario and broken promise."""
    for outcome in outcomes:
        name = f"{outcome.scenario}, {NAMES[outcome.database]}"
        if outcome.measured:
            yield f"- {name}: " + ", ".join(f"{what} {value:g}" for what, value in outcome.measured.items()) + "."
        if outcome.skipped:
            yield f"- {name}: skipped, {outcome.skipped}."
        if outcome.failed:
            yield from (f"- {name}: FAILED, {sentence}." for sentence in why(outcome))


def why(outcome: Outcome) -> list[str]:
    """Why it failed."""
    if outcome.control and not outcome.lost + outcome.doubled + outcome.wrong:
        return [*outcome.broken, "the audit did not find what was planted"]
    nothing = ["nothing was acknowledged"] if not outcome.acknowledged else []
    return [*outcome.broken, *nothing, *([] if outcome.control else outcome.found)]
