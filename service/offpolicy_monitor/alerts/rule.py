"""Rule: one row of the table of rules, and Terms: what holds for one run when its rules are judged.

A rule compares one number per step with a threshold per severity. Terms say which thresholds: those of the run's
profile, of the kind of correction it uses, or its own. Neither knows where figures come from.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from offpolicy_monitor.alerts.history import IN_TOTAL, History
from offpolicy_monitor.vocabulary import PROFILES, Judged

Severity = Literal["info", "warning", "critical"]
#: From mild to worst.
SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")
#: Kinds of the method in use, which decide how much it may mask: by its level, or GSPO and GRPO by themselves.
CORRECTIONS: Final = ("token", "sequence", "gspo", "grpo")

#: One number for all runs, or one per profile or kind of correction; for what is not named the first one holds.
Threshold = float | Mapping[str, float]
Compared = Callable[[History, "Terms", int], float]
Explain = Callable[[History, "Terms", int], str]

#: A breach that needs LONG steps or more may miss SPARE of them: a step that is better by chance ends nothing.
LONG, SPARE = 5, 2


def of_total(path: str) -> str:
    """The path of the same figure of the total gap; the path itself where it is of no mismatch."""
    return next((total + path.removeprefix(own) for own, total in IN_TOTAL.items() if path.startswith(own)), path)


class Limit(NamedTuple):
    """A severity that is in force: the threshold, and how many steps must breach it, of the last `within`.

    own: the threshold is the run's own.
    """

    severity: Severity
    threshold: float
    steps: int
    own: bool = False

    @property
    def spare(self) -> int:
        """How many of the last steps need not breach."""
        return SPARE if self.steps >= LONG else 0

    @property
    def within(self) -> int:
        """Of how many steps."""
        return self.steps + self.spare


@dataclass(frozen=True)
class Terms:
    """The profile of a run, the kind of the correction it uses (None: not known), and its overrides by rule name.

    `length_cap`: tokens that an answer may have at most, None where the run does not say. An override may have
    `enabled` (bool), `steps` (of every severity), and a threshold per severity, None for none.
    """

    profile: str = PROFILES[0]
    correction: str | None = None
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    length_cap: int | None = None
    _plans: dict[str, "Plan"] = field(default_factory=dict, init=False, repr=False, compare=False)
    _of_known: dict[frozenset[str], dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

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
            spare = max((limit.spare for limit in limits.values()), default=0)
            bounds = rule.quiet([limit.threshold for limit in limits.values()])
            found = Plan(rule, self.enabled(rule.name), thresholds, limits, spare, *bounds)
            self._plans[rule.name] = found
        return found

    def of_known(self, known: frozenset[str]) -> dict[str, Any]:
        """What follows for rules, by their names, where these figures are there; kept by whoever works it out.

        Only what was asked for last is kept: the figures of a run seldom change.
        """
        found = self._of_known.get(known)
        if found is None:
            self._of_known.clear()
            found = self._of_known[known] = {}
        return found

    def _limit(self, rule: "Rule", severity: Severity) -> Limit | None:
        override = self.overrides.get(rule.name, {})
        threshold = override.get(severity, rule.threshold(severity, self.correction, self.profile))
        steps = int(override.get("steps") or rule.steps[severity])
        return None if threshold is None else Limit(severity, threshold, steps, severity in override)


class Plan(NamedTuple):
    """A rule under some terms: what is the same at every step.

    severities  from mild to worst; None for one that is not in force
    limits      those that are
    spare       how many steps that do not breach one of them goes on over
    low, high   the least and the largest value that breaches none of them
    """

    rule: "Rule"
    enabled: bool
    severities: tuple[tuple[Severity, Limit | None], ...]
    limits: Mapping[Severity, Limit]
    spare: int
    low: float
    high: float


@dataclass(frozen=True)
class Rule:
    """A rule on the figures of a run's steps.

    inputs       paths of the figures it needs; without them it is silent
    also         paths of those that it looks at where they are there
    compared     (history, terms, index) -> what is compared at that step; NaN: nothing to say
    expression   the same in words, for docs and messages
    thresholds   severity -> threshold; a severity that is not named does not exist
    steps        severity -> how many steps a breach must have; of five or more, two between them may be better
    above        whether it breaches above the threshold, or below it
    source       paper, framework or thread; `proposal` where a number has none
    half         what is at fault where it breaches; None: neither half of the gap, nor the data
    change       it tells that something is no longer as it was: what has stood for long before does not explain it
    follows      halves, and rules that have none, whose causes raise it too: their root speaks for it (alerts.roots)
    baseline     the figure that it compares with the run's own beginning, if it does
    grave        1 where a breach may be critical; None: always. A run's own critical threshold stands for itself
    alone        the level from which the figure alone is grave, where below it something else must be there too
    told         the figure in the words of a message, where `expression` is a formula
    explain      (history, terms, index) -> what a message says of the breach at that step, in place of all that
    """

    name: str
    summary: str
    inputs: tuple[str, ...]
    compared: Compared
    expression: str
    thresholds: Mapping[Severity, Threshold]
    steps: Mapping[Severity, int]
    source: str
    above: bool = True
    half: Judged | None = None
    change: bool = False
    follows: tuple[str, ...] = ()
    baseline: str = ""
    also: tuple[str, ...] = ()
    grave: Compared | None = None
    alone: Threshold | None = None
    told: str = ""
    explain: Explain | None = None

    @cached_property
    def severities(self) -> tuple[Severity, ...]:
        """Those it has, from mild to worst."""
        return tuple(severity for severity in SEVERITIES if severity in self.thresholds)

    def threshold(self, severity: Severity, *kinds: str | None) -> float | None:
        """The threshold of a severity for the first of `kinds` (profile, correction) that it names."""
        return _of_kind(self.thresholds.get(severity), kinds)

    def critical_alone(self, profile: str) -> float | None:
        """The level from which a profile's figure is critical by itself, where its critical threshold asks for more."""
        return _of_kind(self.alone, (profile,))

    @cached_property
    def in_total(self) -> frozenset[str]:
        """The figures of the total gap that stand in for those of mismatch; none where it looks at none."""
        paths = (*self.inputs, *self.also)
        return frozenset(named for path in paths if (named := of_total(path)) != path)

    def worst(self, values: Iterable[float]) -> float:
        """The one furthest into a breach. ValueError where there is none."""
        return max(values) if self.above else min(values)

    def quiet(self, thresholds: Iterable[float]) -> tuple[float, float]:
        """The least and the largest value that breaches none of the thresholds."""
        if self.above:
            return -math.inf, min(thresholds, default=math.inf)
        return max(thresholds, default=-math.inf), math.inf

    def beyond(self, value: float, threshold: float) -> bool:
        """Whether a value breaches; one that is NaN does not."""
        return value > threshold if self.above else value < threshold


def _of_kind(threshold: Threshold | None, kinds: Iterable[str | None]) -> float | None:
    """The number of the first of `kinds` that is named, else of the first name."""
    if isinstance(threshold, Mapping):
        return next((threshold[kind] for kind in kinds if kind and kind in threshold), next(iter(threshold.values())))
    return threshold
