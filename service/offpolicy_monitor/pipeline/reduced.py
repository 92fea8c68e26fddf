"""A reduced shard in place of a measured one: its method rows must be those that the run has now.

Figures of other thresholds than the run's would be merged with nothing, so such a shard is refused with 409 and the
trainer fetches the rows and reduces again. Knows rows and figures; the summary itself was checked when it was decoded.
"""

from collections.abc import Sequence
from typing import Any, Final

from offpolicy_monitor.errors import FieldError, Refusal, quotable
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.checks import InvalidSummaryError, check_figures
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.message import Reduced
from offpolicy_monitor.wire.summaries import fault

#: The kind of the refusal, by which a trainer knows that fetching the rows again helps.
METHODS_CHANGED: Final = "methods-changed"
HOW: Final = "fetch the rows (GET /v1/runs/{run}, `methods`; an unknown run has the default ones) and reduce again"


def accepted(message: Reduced, rows: Sequence[MethodRow]) -> StepSummary:
    """What measuring would have given. Refusal 409 for other rows than these, 422 for figures that contradict."""
    summary = message.summary
    check_rows(summary, rows)
    try:
        check_figures(summary)
    except InvalidSummaryError as error:
        raise fault(error) from error
    return summary


def check_rows(summary: StepSummary, rows: Sequence[MethodRow]) -> None:
    """Refusal 409 unless the summary's methods are the rows whose gap (and advantages, where needed) were sent."""
    defined: dict[str, dict[str, Any]] = {row.name: row.spec for row in rows}
    for name, spec in summary.specs.items():
        if name not in defined:
            raise _changed(name, "is no row of this run")
        if spec != defined[name]:
            raise _changed(name, f"is not {defined[name]}")
    advantages = _has_advantages(summary)
    for row in rows:
        needed = row.gap in summary.gaps and (advantages is True or not row.needs_advantages)
        if needed and row.name not in summary.specs:
            raise _changed(row.name, "is a row of this run")
        if row.name in summary.specs and row.needs_advantages and advantages is False:
            raise Refusal.of_field(422, "invalid-field", f"summary.methods.{row.name}", "needs advantages")


def _has_advantages(summary: StepSummary) -> bool | None:
    """Whether tokens had advantages; None where there are no tokens to tell."""
    gaps = [name for name, gap in summary.gaps.items() if gap.sums]
    return any(_has_signs(summary.arrays, f"histograms/{gap}/log_ratio") for gap in gaps) if gaps else None


def _has_signs(arrays: Arrays, name: str) -> bool:
    """Whether a histogram by sign of the advantage, whose last part is of tokens without one, counts any other."""
    span = arrays.scheme.spans[name]
    return bool(arrays.counts_between(span.start, span.stop - span.shape[-1]).any())


def _changed(name: str, message: str) -> Refusal:
    field = f"summary.methods.{quotable(name)}"
    detail = f"{field} {message}: {HOW}"
    return Refusal(409, METHODS_CHANGED, detail, [FieldError(field, f"{message}: {HOW}")])
