"""Run: what the background thread knows of the run it posts to: its attempt, its method rows, what is to be set.

Asks the service once where the environment does not tell the attempt, or where shards are reduced here and the rows of
methods are needed; again where the service has the first step already with other content. Used by one thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from offpolicy_monitor.client.attempt import following
from offpolicy_monitor.client.connection import Answer
from offpolicy_monitor.client.halves import Halves
from offpolicy_monitor.client.shard import Shard

UNKNOWN = 404
METHODS_CHANGED = "methods-changed"
#: Refusals of a step that is somebody else's: of a trainer before this one, or of one that has moved on.
TAKEN = frozenset({"shard-conflict", "shards-disagree", "stale-attempt", "step-settled"})


@dataclass
class Run:
    """A run by name. `given_attempt` None: it is to be found out; `settings`: what PATCH sets once.

    `carried`: the attempt that the monitor had found out which this one is a copy of, by fork or by pickle. `own`: a
    shard was stored that the service had not, so the attempt is this trainer's, and a conflict is a mistake of its own.
    `speaks`: shard 0 was stored, so this trainer says when the run has ended; `finished`: it has said so.
    """

    name: str
    given_attempt: int | None
    settings: Mapping[str, object] = field(default_factory=dict)
    reduce: bool = False
    carried: int | None = None
    changed: bool = False
    own: bool = False
    speaks: bool = False
    finished: bool = False
    methods: list[Any] | None = None
    _attempt: int | None = None
    _refused: int | None = None
    _reduced: tuple[Shard, Shard] | None = None
    _outdated: bool = True

    def __post_init__(self) -> None:
        self._attempt = self.carried if self.given_attempt is None else self.given_attempt

    @property
    def path(self) -> str:
        """Where the service has it."""
        return f"/v1/runs/{quote(self.name, safe='')}"

    @property
    def attempt(self) -> int:
        """The attempt of every shard, once learned."""
        return self._attempt or 0

    @property
    def learned_attempt(self) -> int | None:
        """The attempt as far as it is known: what a copy of the monitor begins with."""
        return self._attempt

    def learn(self, exchange: Callable[[str, str], Answer], shard: Shard) -> Answer | None:
        """Ask the service what is not known yet, once; its answer where it refuses, else None. Raises as `exchange`."""
        unknown, lacks_rows = self._attempt is None, self.reduce and self._outdated
        asks = unknown and shard.envelope["shards"] == 1
        known: Mapping[str, Any] | None = None
        if asks or lacks_rows:
            answer = exchange("GET", self.path)
            if answer.status not in (200, UNKNOWN):
                return answer
            known = answer.document if answer.status == 200 else None
            self.methods, self._outdated = None if known is None else known.get("methods"), False
        if unknown:
            self._attempt = following(known, shard.envelope["step"], self._refused) if asks else 0
        return None

    def outdated(self, answer: Answer) -> bool:
        """Whether a shard was refused because the run's rows have changed; they are then asked for again."""
        if not self.reduce or answer.kind != METHODS_CHANGED:
            return False
        self._outdated, self._reduced = True, None
        return True

    def taken(self, answer: Answer, shard: Shard) -> bool:
        """Whether a shard was refused because others have its step; the attempt is then found out again.

        Only where it was found out, and until the first shard of this trainer is stored.
        """
        alone = shard.envelope["shards"] == 1
        if self.own or self.given_attempt is not None or not alone or answer.kind not in TAKEN:
            return False
        self._refused, self._attempt = self._attempt, None
        return True

    def stored(self, shard: Shard) -> None:
        """A shard is stored: the run goes on."""
        self.speaks, self.finished = self.speaks or not shard.envelope["shard"], False

    def changes(self, shard: Shard) -> Mapping[str, object]:
        """What PATCH is to set now: all of it until it was, and by shard 0 alone, not by a thousand ranks."""
        return {} if self.changed or shard.envelope["shard"] else self.settings

    def ready(self, shard: Shard, halves: Halves) -> Shard | None:
        """What is to be posted: the shard itself, or with `reduce` its summary; None where there is nothing to post.

        A reduced shard is whole: its halves are joined here, and the first one is not posted.
        """
        if not self.reduce:
            return shard
        if shard.is_first_half:
            return None
        if self._reduced is None or self._reduced[0] is not shard:
            first = halves.find(shard.rollout) if shard.is_later_half else None
            self._reduced = (shard, _reduced(shard if first is None else shard.joined(first), self.methods))
        return self._reduced[1]


def _reduced(shard: Shard, methods: list[Any] | None) -> Shard:
    from offpolicy_monitor.client import reduce  # needs torch, and is wanted by few

    shard.wait()
    summary = reduce.reduced(shard.envelope, shard.arrays, methods, shard.bfloat16, shard.device)
    # A summary has no halves, and names the few sequences that it is about.
    envelope = {name: value for name, value in shard.envelope.items() if name not in ("rollout", "sequence_ids")}
    return Shard(envelope, summary)
