"""What was made for a key, for as long as it is asked for: most shards of a run are of the same tables and rows.

Specs of method rows are known by which objects they are: those of a run are the same with every shard, and comparing
all of them would take as long as what is saved. What a client's summary can make large is remembered by weight: as many
as are usual, few of what is large. Safe to share between threads.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property, update_wrapper
from typing import Any, Final, Generic, Self, TypeVar

#: As many as a run has shards per step, a few times over.
MOST: Final = 1024

Made = TypeVar("Made")
_MADE: Final[dict[Hashable, tuple[Any, tuple[object, ...]]]] = {}


def remembered(key: tuple[Hashable, ...], same: Iterable[object], make: Callable[[], Made]) -> Made:
    """What `make` made of this key and of the same objects, now or before. These are kept, so that none is another."""
    whole = (*key, *map(id, same))
    found = _MADE.get(whole)
    if found is None:
        if len(_MADE) >= MOST:
            _MADE.clear()
        found = _MADE[whole] = make(), tuple(same)
    made: Made = found[0]
    return made


class Once:
    """Keeps what is made of it, which several figures share."""

    __slots__ = ()

    def once(self, make: Callable[[Self], Made]) -> Made:
        """What `make` makes of it, now or before."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made

    def take(self, make: Callable[[Self], Made], made: Made) -> None:
        """Keep what `make` made of an equal one elsewhere."""
        self._made[make] = made

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {}


class Remembering(Generic[Made]):
    """A function of positional arguments whose last results are kept, up to `most` in weight.

    `weigh` is given a result and what it was made of. One object for equal arguments, while it is kept.
    """

    def __init__(self, make: Callable[..., Made], weigh: Callable[..., int], most: int) -> None:
        update_wrapper(self, make)
        self._make, self._weigh, self._most = make, weigh, most
        self._made: OrderedDict[tuple[Any, ...], tuple[Made, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.weight = 0

    def __call__(self, *asked: Any) -> Made:
        """What is remembered of these arguments, or made now."""
        with self._lock:
            if (found := self._made.get(asked)) is not None:
                self._made.move_to_end(asked)
                return found[0]
        made = self._make(*asked)
        weight = 1 + self._weigh(made, *asked)
        with self._lock:
            if asked in self._made:  # another thread was faster
                return self._made[asked][0]
            self._made[asked] = made, weight
            self.weight += weight
            while self.weight > self._most:
                self.weight -= self._made.popitem(last=False)[1][1]
        return made


def remembering(weigh: Callable[..., int], most: int) -> Callable[[Callable[..., Made]], Remembering[Made]]:
    """Let a function remember what it made last, up to `most` in weight."""
    return lambda make: Remembering(make, weigh, most)
