"""Place: which shard this process posts, of how many, or none where another rank posts the same tokens.

Asks torch.distributed where the trainer has set it up, and knows no framework. A place is found when it is first
needed, since most hooks are built before the process group is.
"""

import sys
from collections.abc import Callable
from typing import TypeAlias

Place: TypeAlias = Callable[[], tuple[int, int] | None]
"""Gives (shard, shards), or None where this rank must not post."""


def of_process() -> tuple[int, int]:
    """(rank, world size) of torch.distributed; (0, 1) without it. Right where ranks are data-parallel alone."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def in_groups_of(size: int) -> Place:
    """The place where every `size` neighbouring ranks hold the same tokens (tensor, sequence or context parallel)."""

    def place() -> tuple[int, int] | None:
        rank, world = of_process()
        return (rank // size, world // size) if rank % size == 0 else None

    return place
