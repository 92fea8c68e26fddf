"""Healthy runs judged: how many episodes of each severity of each rule became active, and in how many steps."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.detection.healthy import STEPS, healthy_run
from tests.detection.judged import judged, row_of, summary_of, terms_of

Key = tuple[str, str]


@dataclass
class Counted:
    """Healthy steps, and of each (rule, severity) the episodes and the seeds of the runs that had one."""

    steps: int = 0
    runs: int = 0
    episodes: Counter[Key] = field(default_factory=Counter)
    seeds: dict[Key, list[int]] = field(default_factory=dict)

    def of(self, severity: str) -> int:
        """Episodes of one severity, of all rules."""
        return sum(number for (_, given), number in self.episodes.items() if given == severity)

    def per_thousand(self, key: Key) -> float:
        """Episodes in 1,000 healthy steps."""
        return 1000 * self.episodes[key] / self.steps


def count_run(seed: int, steps: int = STEPS) -> Counted:
    """The episodes of one healthy run."""
    healthy = healthy_run(seed)
    method = healthy.run.method
    rows = [row_of(summary_of(parts, method), step, method) for step, parts in enumerate(healthy.steps(seed, steps))]
    episodes: dict[Key, int] = {
        (v.rule, v.severity): v.episodes for v in judged(rows, terms_of(healthy.run.profile, method))
    }
    found = Counter({key: number for key, number in episodes.items() if number})
    return Counted(steps, 1, found, {key: [seed] for key in found})


def add(counts: Iterable[Counted]) -> Counted:
    """All runs together."""
    total = Counted()
    for counted in counts:
        total.steps += counted.steps
        total.runs += counted.runs
        total.episodes.update(counted.episodes)
        for key, seeds in counted.seeds.items():
            total.seeds.setdefault(key, []).extend(seeds)
    return total
