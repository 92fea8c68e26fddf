"""Weights: whether a mismatch that rose is of weights that the engine does not have, and until when.

A rise is k3 of JUMP times what it was before, and of mean |d| as well, for LASTED steps. Any bug that begins between
two steps does that, so a rise alone is no evidence of weights; CAUSES are. From then on the mismatch is held against
what it was before the rise, until it is back there: an engine that is still stale is not forgotten when k3 no longer
rises.
"""

import math
from collections.abc import Callable
from statistics import median
from typing import Final, NamedTuple

from offpolicy_monitor.alerts import drift, trends
from offpolicy_monitor.alerts.engine import LAG
from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rule import Compared, Explain, Terms
from offpolicy_monitor.pairs import kendall_z

#: A rise: k3, and mean |d| where all tokens have moved (a single token may triple k3), for so many steps.
JUMP, MOVED, LASTED = 3.0, 1.7, 3
#: Steps before a rise that it is against: their median, of so many at least.
BEFORE, LEAST_BEFORE = 10, 5
#: Steps after a rise in which its cause may still show.
LATELY: Final = 16
#: Above this times what it was before, k3 is not back.
RETURNED: Final = 1.5
#: Growth since a rise, from the first third of the steps to the last, its z by Kendall's test, of so many steps.
GROWN, GROWN_Z, FEWEST = 1.5, 2.3, 6
#: A rise within one step, over the largest of the LASTED steps before it: what creeps has no step that it began at.
SHARP: Final = 2.0
#: New versions come seldom where the BEFORE steps have had so many at most.
SELDOM: Final = 1
#: The gap in steps between the first ones of a run that rules see and the newest: nothing rises across it.
SEAM: Final = 26
#: What tokens of mu < 0.01 hold of k3 where all are off one way: old weights move all tokens, a broken tail and
#: log-probs of other tokens show there first, and there k3 grows by chance.
TAIL: Final = 0.3
#: By how much rewarded answers are likelier to the trainer than to the engine, over mean |d|, and z of that over the
#: steps since a rise: in the demo 0.17 and more where the engine takes no weights, 0.08 at most where its noise grows.
LEARNED, LEARNED_Z = 0.12, 4.0
#: k3 of a shard or machine over that of the others, and the share of d^2 that grows with lag, with its z.
APART, SHARE, SHARE_Z = 3.0, 0.55, 3.2

OUTLIER: Final = "outliers.mismatch.ratio"
LAG_SHARE, LAG_Z = "signature.lag.share", "signature.lag.z"
TAIL_SHARE, TAIL_SIDE = "signature.low_probability.k3_share", "signature.low_probability.direction"
LEARNED_BY, LEARNED_BY_Z = "signature.learned.difference", "signature.learned.z"
#: The figures that evidence of weights is looked for in, where they are there.
FIGURES: Final = (LAG, OUTLIER, LAG_SHARE, LAG_Z, TAIL_SHARE, TAIL_SIDE, LEARNED_BY, LEARNED_BY_Z)

#: What is noted of a step: k3 before a rise that has lasted since two steps ago; the same while it is held, since which
#: step, and by which of CAUSES. 0 is nothing.
ROSE, HELD, SINCE, BY = (f"weights: {name}" for name in ("rose", "held", "since", "by"))


class Looked(NamedTuple):
    """The figures of a rise, by their paths."""

    version: str
    k3: str
    spread: str


class Rise(NamedTuple):
    """A rise that began at index `began`, as seen at index `now`."""

    history: History
    looked: Looked
    began: int
    now: int

    def since(self, path: str) -> list[float]:
        """The values that there are since it began."""
        return [value for value in self.history.column(path)[self.began : self.now + 1] if value == value]

    def lately(self, path: str) -> float:
        """The least of the last LASTED steps."""
        return trends.least_of(self.history.column(path), self.now, LASTED)


def unsynced(looked: Looked) -> Compared:
    """k3 over what it was before the engine's weights were wrong, while they are; else 0.

    NaN where a step lacks k3 or its version, and before there are LEAST_BEFORE steps to compare with.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        values = history.column(looked.k3)
        now = trends.median_of(values, index, LASTED, least=1)
        if math.isnan(now) or math.isnan(history.value(looked.version, index)):
            return math.nan
        if len(trends.known(values, index, LEAST_BEFORE)) < LEAST_BEFORE:
            return math.nan
        before = held_at(history, looked, index)
        return now / before if before else 0.0

    return compared


def told(looked: Looked) -> Explain:
    """`The engine samples with other weights than the trainer has: k3 is 12 times ... since step 70, and ...`"""

    def explain(history: History, terms: Terms, index: int) -> str:
        before = held_at(history, looked, index)
        now = trends.median_of(history.column(looked.k3), index, LASTED, least=1)
        since, cause = history.notes(SINCE)[index] or 0, CAUSES[int(history.notes(BY)[index] or 0)]
        return (
            f"The engine samples with other weights than the trainer has: k3 is {now:.2g}, {now / before:.3g} times "
            f"what it was before step {since:.0f}, and {cause.words}."
        )

    return explain


def held_at(history: History, looked: Looked, index: int) -> float:
    """k3 before the rise that is held at a step, at least NO_MISMATCH; 0 where none is."""
    held = history.notes(HELD)
    first = index
    while first > 0 and held[first - 1] is None:
        first -= 1
    for number in range(first, index + 1):
        if held[number] is None:
            _note(history, looked, number)
    return held[index] or 0.0


def _note(history: History, looked: Looked, index: int) -> None:
    """What is held at a step, after the one before it."""
    kept = [history.notes(name) for name in (HELD, SINCE, BY)]
    found = tuple((notes[index - 1] or 0.0) if index else 0.0 for notes in kept)
    history.notes(ROSE)[index] = rise_at(history, looked, index - LASTED + 1)
    values = history.column(looked.k3)
    if values[index] == values[index]:
        if found[0] and not trends.median_of(values, index, LASTED, least=1) > RETURNED * found[0]:
            found = 0.0, 0.0, 0.0
        if not found[0]:
            found = _found(history, looked, index)
    for notes, value in zip(kept, found, strict=True):
        notes[index] = value


def rise_at(history: History, looked: Looked, began: int) -> float:
    """The median k3 before a rise that began at a step and has lasted, at least NO_MISMATCH; 0 where none did."""
    values, spreads, end = history.column(looked.k3), history.column(looked.spread), began + LASTED - 1
    if began < LEAST_BEFORE or history.steps[began] - history.steps[began - 1] > SEAM:
        return 0.0
    least = trends.least_of(values, end, LASTED)
    if not least > JUMP * drift.NO_MISMATCH:
        return 0.0
    before = max(trends.median_before(values, began, BEFORE, least=LEAST_BEFORE), drift.NO_MISMATCH)
    if not least > JUMP * before:
        return 0.0
    usual = trends.median_before(spreads, began, BEFORE, least=LEAST_BEFORE)
    return before if trends.least_of(spreads, end, LASTED) > MOVED * usual else 0.0


def _found(history: History, looked: Looked, index: int) -> tuple[float, float, float]:
    """Of rises that have lasted, the earliest with a cause that is of weights: k3 before, its step, its cause."""
    now, rose = trends.least_of(history.column(looked.k3), index, LASTED), history.notes(ROSE)
    for end in range(max(0, index - LATELY), index + 1):
        before = rose[end] or 0.0
        if before and now > JUMP * before:
            rise = Rise(history, looked, end - LASTED + 1, index)
            for number, cause in enumerate(CAUSES):
                if cause.shows(rise):
                    return before, history.steps[rise.began], number
    return 0.0, 0.0, 0.0


def apart(rise: Rise) -> bool:
    """Whether one shard, engine or GPU has it alone."""
    return rise.lately(OUTLIER) > APART


def with_lag(rise: Rise) -> bool:
    """Whether it grows with the age of the tokens."""
    return rise.lately(LAG_SHARE) > SHARE and rise.lately(LAG_Z) > SHARE_Z


def older(rise: Rise) -> bool:
    """Whether tokens are older than any was before."""
    before = trends.known(rise.history.column(LAG), rise.began, BEFORE)
    return len(before) >= LEAST_BEFORE and rise.lately(LAG) > max(before)


def from_version_to_version(rise: Rise) -> bool:
    """Whether it came in one step, and has grown since with new versions, by what the trainer has learned.

    The noise of an engine may grow from step to step as well, and so with versions; a tail of tokens may, too.
    """
    values, versions = rise.history.column(rise.looked.k3), rise.history.column(rise.looked.version)
    since = rise.since(rise.looked.k3)
    before = trends.known(values, rise.began, LASTED)
    if len(since) < FEWEST or not versions[rise.now] > versions[rise.began]:
        return False
    third = len(since) // 3
    grown = median(since[-third:]) > GROWN * median(since[:third]) and kendall_z(since) > GROWN_Z
    return grown and since[0] > SHARP * max(before) and not in_tail(rise) and learned(rise)


def learned(rise: Rise) -> bool:
    """Whether rewarded answers have been likelier to the trainer than to the engine since it began."""
    sizes, scores = rise.since(LEARNED_BY), rise.since(LEARNED_BY_Z)
    enough = min(len(sizes), len(scores)) >= FEWEST
    return enough and median(sizes) > LEARNED and sum(scores) / math.sqrt(len(scores)) > LEARNED_Z


def in_tail(rise: Rise) -> bool:
    """Whether improbable tokens have much of it, all off the same way."""
    return rise.lately(TAIL_SHARE) * rise.history.value(TAIL_SIDE, rise.now) ** 2 > TAIL


def with_version(rise: Rise) -> bool:
    """Whether it came with a new version, where these come seldom."""
    versions = rise.history.column(rise.looked.version)
    before = trends.rises(versions, range(max(1, rise.began - BEFORE), rise.began))
    return trends.change(versions, rise.began) > 0 and len(before) <= SELDOM


class Cause(NamedTuple):
    """Evidence that a rise is of weights, and how it is told."""

    words: str
    shows: Callable[[Rise], bool]


CAUSES: Final = (
    Cause("one shard, engine or GPU has it alone", apart),
    Cause("it grows with the age of the tokens", with_lag),
    Cause("tokens are older than any was before", older),
    Cause("it came with a new version, which come seldom", with_version),
    Cause(
        "it has grown with new versions since, and rewarded answers are likelier to the trainer than to the engine",
        from_version_to_version,
    ),
)
