"""Posted: how the newest gradient steps of a run have arrived, and figures of what they held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

from offpolicy_monitor.figures import at

#: Of a run's newest training steps, those that may still wait for shards.
UNDER_WAY: Final = 2


class Arrival(NamedTuple):
    """One gradient step: how many shards it said it has, and how many have come."""

    step: int
    minibatch: int
    shards: int
    received: int
    policy_version: int | None


@dataclass(frozen=True)
class Posted:
    """arrivals: gradient steps, ascending; figures: of the merge of the newest steps that count, nested as answers have
    them, {} where none does; causes: by name of the hypotheses that are believed of them title, summary and the first
    thing to try; bitwise: whether engine and trainer are meant to agree to the bit.
    """

    arrivals: Sequence[Arrival]
    figures: Mapping[str, Any]
    causes: Mapping[str, tuple[str, str, str]]
    bitwise: bool = False

    def figure(self, path: str) -> float:
        """The figure at a path; NaN where it is absent."""
        found = at(self.figures, path)
        return float("nan") if found is None else found

    def has(self, gap: str) -> bool:
        """Whether a gap has tokens."""
        return self.figure(f"gaps.{gap}.tokens") > 0

    @cached_property
    def steps(self) -> Mapping[int, int]:
        """Training steps, ascending, and how many gradient steps each has."""
        found: dict[int, int] = {}
        for arrival in self.arrivals:
            found[arrival.step] = found.get(arrival.step, 0) + 1
        return found

    @cached_property
    def awaited(self) -> Sequence[Arrival]:
        """Gradient steps of which all shards should have come."""
        under_way = set(list(self.steps)[-UNDER_WAY:])
        return [arrival for arrival in self.arrivals if arrival.step not in under_way]

    @cached_property
    def incomplete(self) -> Sequence[Arrival]:
        """Those of them that lack a shard."""
        return [arrival for arrival in self.awaited if arrival.received < arrival.shards]

    @cached_property
    def jumps(self) -> Sequence[tuple[int, int]]:
        """Steps that do not follow one another: neither by one nor by the gradient steps of the first."""
        return [(a, b) for a, b in pairwise(self.steps) if b - a not in (1, self.steps[a])]

    @cached_property
    def rises(self) -> Sequence[int]:
        """By how much the policy version goes on from each training step to the next."""
        versions = {a.step: a.policy_version for a in self.arrivals if a.policy_version is not None}
        return [after - before for before, after in pairwise(versions.values())]
