"""What was made for a key, for as long as it is asked for: most shards of a run are of the same tables and rows.

Specs of method rows are known by which objects they are: those of a run are the same with every shard, and comparing
all of them would take as long as what is saved. Safe to share between threads.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, TypeVar

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
