"""Facts: what a sentence is said of, as plain values: where a run stands, what its rules found, how figures went."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

from offpolicy_monitor.vocabulary import BELIEVED, GAPS, Judged

State = Literal["live", "silent", "finished"]

#: Figures of windows.
PATHS: Final = (
    *("gaps.mismatch.k3", "gaps.staleness.k3", "gaps.total.k3"),
    *("attribution.mismatch", "attribution.staleness"),
    *("tokens", "excluded_tokens.nonfinite", "policy_lag.max"),
    *("mismatch_lag.token_fraction", "mismatch_lag.k3", "mismatch_lag.k3_current"),
)
K3: Final[Mapping[str, str]] = {gap: f"gaps.{gap}.k3" for gap in GAPS}
#: Steps that "now" is the median of.
NOW: Final = 10
#: Times the k3 of tokens that the newest weights sampled from which that of the others has version lag in it.
LAGS: Final = 2.0


@dataclass(frozen=True)
class Window:
    """Consecutive training steps [n], ascending, and of each path in PATHS [n] numbers, None where a step lacks it."""

    steps: Sequence[int] = ()
    columns: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    def median(self, path: str, newest: int | None = None, since: int | None = None) -> float | None:
        """The median of what is there of a figure: of the steps from `since` on, of those the `newest` ones."""
        values = [
            value
            for step, value in zip(self.steps, self.columns.get(path, ()), strict=False)
            if value is not None and (since is None or step >= since)
        ]
        chosen = values if newest is None else values[-newest:]
        return median(chosen) if chosen else None

    def last(self, path: str) -> float | None:
        """The figure of the newest step; None where that lacks it."""
        values = self.columns.get(path, ())
        return values[-1] if values else None


@dataclass(frozen=True)
class Breach:
    """An alert on steps that is active, or was when the run finished.

    `judged` is what its rule looks at; None: anything but a gap or the data.
    """

    alert: str
    severity: Literal["warning", "critical"]
    since_step: int
    judged: Judged | None = None
    value: float | None = None
    threshold: float | None = None
    summary: str = ""


@dataclass(frozen=True)
class Cause:
    """The likeliest cause of the mismatch by its name, `title` in words, and what to try, first things first."""

    name: str
    title: str
    score: float
    tries: Sequence[str]


@dataclass(frozen=True)
class Masks:
    """Shares of the tokens: what the correction in use drops, and the standard method, as sentences name it, at its
    preset's threshold; `one_percent` is the threshold at which that would drop 1 %. None where it is not known."""

    correction: str | None = None
    dropped: float | None = None
    standard: str | None = None
    standard_dropped: float | None = None
    standard_threshold: float | None = None
    one_percent: float | None = None


@dataclass(frozen=True)
class Facts:
    """A run with at least one step; times in unix seconds.

    start: steps 5 to 25, its own baseline. newest: the newest 50 at most. before: 30 before the breach began, empty
    where there is none. threshold: the first one of mismatch k3. cause: None where none was looked for or found, of
    which `searched` tells.
    """

    state: State
    last_step: int
    steps: int
    last_batch_at: float
    now: float
    step_seconds: float | None = None
    breaches: Sequence[Breach] = ()
    start: Window = Window()
    newest: Window = Window()
    before: Window = Window()
    threshold: float | None = None
    cause: Cause | None = None
    searched: bool = True
    masks: Masks = Masks()

    def of(self, *judged: Judged) -> list[Breach]:
        """The breaches of rules that look at one of these."""
        return [breach for breach in self.breaches if breach.judged in judged]

    @property
    def named(self) -> Cause | None:
        """The cause, where it is sure enough to be named."""
        sure = self.cause is not None and self.cause.name != "noise" and self.cause.score >= BELIEVED
        return self.cause if sure else None


def onset(breaches: Iterable[Breach]) -> int:
    """The first step of those of the worst severity: a warning may have stood for long without harm."""
    rows = list(breaches)
    critical = [breach for breach in rows if breach.severity == "critical"]
    return min(breach.since_step for breach in critical or rows)
