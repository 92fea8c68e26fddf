"""Rule: one row of the table of rules, and Terms: what holds for one run when its rules are judged.

A rule compares one number per step with a threshold per severity. Terms say which thresholds: those of the run's
profile, of the kind of correction it uses, or its own. Neither knows where figures come from.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from offpolicy_monitor.alerts.history import History

Severity = Literal["info", "warning", "critical"]
#: What a rule looks at: one half of the gap, both together as one, or the data itself.
Half = Literal["mismatch", "staleness", "total", "data"]
#: From mild to worst.
SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")
PROFILES: Final = ("dense_bf16", "moe_bf16", "fp8", "fp4", "bitwise")
#: Kinds of the method in use, which decide how much it may mask: by its level, or GSPO and GRPO by themselves.
CORRECTIONS: Final = ("token", "sequence", "gspo", "grpo")

#: One number for all runs, or one per profile or kind of correction; for what is not named the first one holds.
Threshold = float | Mapping[str, float]
Measure = Callable[[History, "Terms", int], float]


class Limit(NamedTuple):
    """A severity that is in force: the threshold, and for how many steps in a row it must be breached."""

    severity: Severity
    threshold: float
    steps: int


@dataclass(frozen=True)
class Terms:
    """The profile of a run, the kind of the correction it uses (None: not known), and its overrides by rule name.

    An override may have `enabled` (bool), `steps` (of every severity), and a threshold per severity, None for none.
    """

    profile: str = PROFILES[0]
    correction: str | None = None
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    _plans: dict[str, "Plan"] = field(default_factory=dict, init=False, repr=False, compare=False)

    def enabled(self, rule: str) -> bool:
        """Whether the run wants this rule."""
        override = self.overrides.get(rule)
        return override is None or bool(override.get("enabled", True))

    def limits(self, rule: "Rule") -> Mapping[Severity, Limit]:
        """The severities of a rule that are in force, from mild to worst."""
        return self.plan(rule).limits

    def plan(self, rule: "Rule") -> "Plan":
        """What these terms make of a rule, worked out once."""
        found = self._plans.get(rule.name)
        if found is None:
            thresholds = tuple((severity, self._limit(rule, severity)) for severity in rule.severities)
            limits = {severity: limit for severity, limit in thresholds if limit is not None}
            found = self._plans[rule.name] = Plan(rule, self.enabled(rule.name), thresholds, limits, {})
        return found

    def _limit(self, rule: "Rule", severity: Severity) -> Limit | None:
        override = self.overrides.get(rule.name, {})
        threshold = override.get(severity, rule.threshold(severity, self.correction, self.profile))
        steps = int(override.get("steps") or rule.steps[severity])
        return None if threshold is None else Limit(severity, threshold, steps)


class Plan(NamedTuple):
    """A rule under some terms: what is the same at every step.

    severities  from mild to worst; None for one that is not in force
    limits      those that are
    said        what is said of the rule where that has no number, by what it lacks; kept by whoever says it
    """

    rule: "Rule"
    enabled: bool
    severities: tuple[tuple[Severity, Limit | None], ...]
    limits: Mapping[Severity, Limit]
    said: dict[tuple[str, ...], Any]


@dataclass(frozen=True)
class Rule:
    """A rule on the figures of a run's steps.

    inputs       paths of the figures it needs; without them it is silent
    also         paths of those that it looks at where they are there
    measure      (history, terms, index) -> what is compared at that step; NaN: nothing to say
    expression   the same in words, for docs and messages
    thresholds   severity -> threshold; a severity that is not named does not exist
    steps        severity -> how many steps in a row it must be breached
    above        whether it breaches above the threshold, or below it
    source       paper, framework or thread; `proposal` where a number has none
    half         what is at fault where it breaches; None: neither half of the gap, nor the data
    baseline     the figure that it compares with the run's own beginning, if it does
    """

    name: str
    summary: str
    inputs: tuple[str, ...]
    measure: Measure
    expression: str
    thresholds: Mapping[Severity, Threshold]
    steps: Mapping[Severity, int]
    source: str
    above: bool = True
    half: Half | None = None
    baseline: str = ""
    also: tuple[str, ...] = ()

    @cached_property
    def severities(self) -> tuple[Severity, ...]:
        """Those it has, from mild to worst."""
        return tuple(severity for severity in SEVERITIES if severity in self.thresholds)

    def threshold(self, severity: Severity, *kinds: str | None) -> float | None:
        """The threshold of a severity for the first of `kinds` (profile, correction) that it names."""
        found = self.thresholds.get(severity)
        if isinstance(found, Mapping):
            return next((found[kind] for kind in kinds if kind and kind in found), next(iter(found.values())))
        return found

    def worst(self, values: Iterable[float]) -> float:
        """The one furthest into a breach. ValueError where there is none."""
        return max(values) if self.above else min(values)

    def beyond(self, value: float, threshold: float) -> bool:
        """Whether a value breaches; one that is NaN does not."""
        return value > threshold if self.above else value < threshold
