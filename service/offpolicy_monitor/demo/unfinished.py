"""Unfinished: answers that the engine still writes while the trainer trains on others, and what comes too old.

What `--fault dropped_stale` plants: of a long answer the weights that began it are several training steps old when it
is done, and the trainer drops it. It knows neither engines nor the loss.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import torch

from offpolicy_monitor.demo.rollout import Rollout, joined

#: The fault that asks for it.
DROPS: Final = "dropped_stale"
#: Tokens of an answer that the engine writes in one round, the least and the most: as busy as it is.
PACE: Final = (2, 6)


class Unfinished:
    """Answers by the round in which they are done. A round is what the engine does between two weight syncs."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.round = self.groups = 0
        self.done: defaultdict[int, list[Rollout]] = defaultdict(list)

    def write(self, blocks: Sequence[Rollout], lag: int) -> list[Rollout]:
        """One round: begin these blocks, and give what is done by its end, `lag` rounds after its last token."""
        for block in blocks:
            least, most = PACE
            pace = torch.randint(least, most + 1, block.versions.shape, generator=self.generator)
            rounds = (block.mask.sum(1) - 1) // pace + lag
            begun = block.in_groups_from(self.groups)
            self.groups = int(begun.groups.max()) + 1
            for late in sorted(set(rounds.tolist())):
                self.done[self.round + late].append(begun.rows(rounds == late))
        self.round += 1
        return self.done.pop(self.round - 1, [])


def young(answers: Sequence[Rollout], step: int, oldest: float) -> list[Rollout]:
    """Those that weights of at most `oldest` training steps ago began; what has none left is not there."""
    kept = [each.rows(step - each.versions <= oldest) for each in answers]
    return [each for each in kept if len(each.versions)]


def blocks_of(answers: Sequence[Rollout], blocks: int) -> list[Rollout]:
    """So many blocks of about equal size, of answers of all ages alike; fewer where there are fewer answers."""
    together = joined(answers)
    return [together.rows(slice(first, None, blocks)) for first in range(min(blocks, len(together.versions)))]
