"""Evidence: figures of one or more steps by their paths, as hypotheses are judged by, and what some of them are of.

A figure that a step lacks is not there. It knows summaries and no hypothesis.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from offpolicy_monitor.diagnosis.few import few
from offpolicy_monitor.diagnosis.over_steps import over_steps
from offpolicy_monitor.figures import walk
from offpolicy_monitor.summary.records import ALL, Wanted
from offpolicy_monitor.summary.step import MARKS, StepSummary, merge_all

#: What the evidence is taken from.
LOOKED_AT: Final = (
    *("gaps.mismatch.", "signature.", "routing.mismatch.", "calibration."),
    *("noise_floor.", "support.mismatch."),
)
#: The parts of a step that this is in, with all their marks, beside its gaps.
PARTS: Final = frozenset(path.partition(".")[0] for path in LOOKED_AT)
WANTED: Final = Wanted(PARTS.union(*(MARKS.get(part, ()) for part in PARTS)))
#: Texts among the figures: which shard, label or column a mark is of.
NAMED: Final = (("replica", "name"), ("grid", "column"), ("decimals", "column"))
WARNING: Final = "limits.warning"
CRITICAL: Final = "limits.critical"


class Limits(NamedTuple):
    """Mismatch k3 at which the run's MismatchKL warns and is critical: of the rules, which know its profile."""

    warning: float
    critical: float


class Evidence(dict[str, float]):
    """Figures by path. `names`: by path, which replica, column or sequence a mark is of."""

    def __init__(self, figures: Mapping[str, float], names: Mapping[str, str]) -> None:
        super().__init__(figures)
        self.names = names


def collect(summaries: Sequence[StepSummary], steps: Sequence[int] = (), *, limits: Limits) -> Evidence:
    """The evidence of summaries in order: figures of their merge, what changes between them, and what few sequences do.

    Where k3 jumped and stayed, figures are of the steps since, which those before would dilute. `steps` names the step
    of each, without it they are counted from 0; `limits` are those of the run.
    """
    numbers = steps or range(len(summaries))
    between, begin = over_steps(summaries, numbers)
    since, merged = summaries[begin:], merge_all(summaries[begin:])
    figures = {**merged.in_dicts(WANTED), "gaps": merged.in_rows(ALL)["gaps"].figures()}
    found = {path: value for path, value in walk(figures) if path.startswith(LOOKED_AT)}
    found |= {WARNING: limits.warning, CRITICAL: limits.critical}
    of_few, named = few(since, merged, numbers[begin:])
    return Evidence(found | between | of_few, _names(figures.get("signature", {})) | named)


def _names(signature: Mapping[str, Any]) -> dict[str, str]:
    marks = ((f"signature.{mark}.{key}", signature.get(mark, {}).get(key)) for mark, key in NAMED)
    return {path: name for path, name in marks if name}
