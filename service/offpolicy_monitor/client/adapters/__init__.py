"""Adapters: each turns one framework's own objects into `Monitor.log` calls, and knows that framework alone.

None of them imports its framework when it is imported itself, and none of them raises into training (`quiet`). What
they post to is anything with `log` and `finish`, so that they know nothing of queues or HTTP.

    <framework>   the objects of one framework
    shared        what adapters share; `place`, and under pipeline parallelism `stages`, are for trainers too, to say
                  which shard a process posts
"""

from typing import Any, Protocol


class Logs(Protocol):
    """What an adapter posts to: a `Monitor`, or whatever a test has in its place."""

    def log(self, *, step: int, **arguments: Any) -> object:
        """One shard of one gradient step; the arguments are those of `Monitor.log`."""
        ...

    def finish(self, *, for_run: bool = False) -> object:
        """The run has ended normally, as `Monitor.finish` says it."""
        ...
