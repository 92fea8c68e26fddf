"""Stages: which rank posts under pipeline parallelism, where only the last stage has log-probs.

Takes ranks in Megatron's order: tensor- and context-parallel ranks are neighbours, the stages are farthest apart. Knows
numbers of ranks, and no framework.
"""

from collections.abc import Sequence

from offpolicy_monitor.client.adapters.shared.place import Place, of_process


def in_stages(size: int, stages: int, process: Place = of_process) -> Place:
    """The place where `size` neighbouring ranks hold the same tokens and a pipeline has `stages`.

    Of 8 ranks with size 2 and 2 stages, rank 4 is shard 0 of 2 and rank 6 is shard 1; no other rank posts.
    `process` gives (rank, world size).
    """

    def place() -> tuple[int, int] | None:
        found = process()
        if found is None:
            return None
        rank, world = found
        in_stage = rank - (world - world // stages)
        return (in_stage // size, world // stages // size) if in_stage >= 0 and in_stage % size == 0 else None

    return place


def head_of_last(ranks: Sequence[int], stages: int) -> int:
    """Of the ranks of one model replica, in order, the first one of the last stage."""
    return ranks[len(ranks) - len(ranks) // stages]
