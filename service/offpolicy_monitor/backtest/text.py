"""A timeline as text: what was read as what, then a row for each alert in the order of the steps, and what it said."""

from collections.abc import Iterator, Sequence

from offpolicy_monitor.alerts import Terms
from offpolicy_monitor.answers.lists import figure
from offpolicy_monitor.answers.style import LEVELS, SIGNS, Style
from offpolicy_monitor.answers.table import Column, table
from offpolicy_monitor.backtest.figures import Figures
from offpolicy_monitor.backtest.timeline import Alert


def told(figures: Figures, terms: Terms, alerts: Sequence[Alert], style: Style) -> Iterator[str]:
    """The lines."""
    first, last = (figures.steps[0], figures.steps[-1]) if figures.steps else (0, 0)
    yield f"{len(figures.steps):,} steps, {first} to {last}, {len(figures.columns)} figures, profile {terms.profile}"
    for note in figures.notes:
        yield from style.wrapped(note, "  ")
    if figures.other:
        yield from style.wrapped(f"not looked at: {', '.join(figures.other)}", "  ")
    yield ""
    if not alerts:
        yield "No rule would have fired."
        return
    levels = [LEVELS[alert.severity] for alert in alerts]
    columns = [
        Column("step", [str(alert.step) for alert in alerts], right=True),
        Column("until", ["" if alert.until is None else str(alert.until) for alert in alerts], right=True, optional=2),
        Column("", [f"{SIGNS[level]} {alert.severity}" for level, alert in zip(levels, alerts, strict=True)],
               colours=levels),
        Column("alert", [alert.alert for alert in alerts], cut=12),
        Column("evidence of", [alert.inhibited_by or "" for alert in alerts], optional=3),
        Column("value", [figure(alert.value, 3) for alert in alerts], right=True),
        Column("message", [alert.message for alert in alerts], cut=30),
    ]  # fmt: skip
    yield from table(columns, style)
