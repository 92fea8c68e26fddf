"""python -m tests.detection.detectors: four sequential tests of log k3 beside each other, at one rate of false alarms.

Each gives a number at every step of a run, and its limit is what healthy runs are beyond once in so many steps. Delays
are on planted changes, and on the published series of tests/incidents. All know the same baseline, noise and tolerated
growth as offpolicy_monitor.alerts.drift, so that it is the tests that are compared.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray
from offpolicy_monitor.alerts import drift

Numbers = NDArray[np.float64]
Detector = Callable[[Sequence[float]], Numbers]
PRIOR: Final = drift.PRIORS["fp8"]
SERIES: Final = Path(__file__).resolve().parents[1] / "incidents" / "series"
#: Healthy runs that limits are set on, and others that the rate is measured on; steps of each.
RUNS, STEPS = 120, 320
#: Once in so many healthy steps a test may be beyond its limit.
SELDOM: Final = 10_000
#: Planted changes: by what factor, at which step, over how many steps.
CHANGES: Final = ((2.0, 8, 1), (3.0, 8, 1), (2.0, 60, 1), (3.0, 60, 1), (10.0, 60, 1), (4.0, 60, 40))
#: Plays of each change.
PLAYS: Final = 40


def excesses(values: Sequence[float]) -> Iterator[tuple[float, float, float]]:
    """Of each step: how far log k3 is above baseline and what is tolerated, the noise, the baseline's variance."""
    for count in range(1, len(values) + 1):
        before = max(1, min(drift.FIRST, count - drift.LASTED))
        noise = drift.noise(values[: min(drift.FIRST, count)])
        base = drift.level(values[:before], noise, PRIOR)
        tolerated = min(drift.MOST, max(drift.LEAST, drift.RATE * (count - (before + 1) / 2)))
        yield min(values[count - 1] - base.mean - tolerated, drift.LARGEST), noise, base.variance


def cusum(values: Sequence[float]) -> Numbers:
    """Page's CUSUM for growth to twice what is tolerated."""
    found, total, shift = [], 0.0, math.log(2)
    for excess, noise, variance in excesses(values):
        total = max(0.0, total + shift * (excess - shift / 2) / (noise**2 + variance))
        found.append(total)
    return np.array(found)


def page_hinkley(values: Sequence[float]) -> Numbers:
    """Page-Hinkley: the sum of what is above the run's own running mean, over its least so far."""
    so_far = np.cumsum(values) / np.arange(1, len(values) + 1)
    sums = np.cumsum(np.minimum(np.asarray(values) - so_far - drift.LEAST, drift.LARGEST))
    return np.asarray(sums - np.minimum.accumulate(sums))


def e_process(values: Sequence[float]) -> Numbers:
    """One e-process from the first step on: the logarithm of the mean of likelihood ratios of two shifts."""
    logs = np.zeros((len(values), len(drift.SHIFTS)))
    for step, (excess, noise, variance) in enumerate(excesses(values)):
        logs[step] = [shift * (excess - shift / 2) / (noise**2 + variance) for shift in drift.SHIFTS]
    return np.asarray(np.logaddexp.reduce(np.cumsum(logs, axis=0), axis=1))


def shiryaev_roberts(values: Sequence[float]) -> Numbers:
    """The one that the rule uses."""
    k3, baseline, found = [math.exp(value) for value in values], None, []
    for index in range(len(values)):
        growth, size = drift.of_run(k3, index, PRIOR, baseline)
        baseline = size or None
        found.append(growth.evidence)
    return np.array(found)


DETECTORS: Final[Mapping[str, Detector]] = {
    "CUSUM": cusum,
    "Page-Hinkley": page_hinkley,
    "e-process": e_process,
    "Shiryaev-Roberts": shiryaev_roberts,
}


def healthy(seed: int, steps: int = STEPS) -> list[float]:
    """log k3 of a run that wanders, slowly rises or falls, and has a noisier step now and then."""
    source = np.random.default_rng(seed)
    noise, slope = source.choice([0.1, 0.2, 0.3]), source.uniform(-0.2, 0.2)
    level, wander, found = math.log(PRIOR.usual) + 0.7 * source.standard_normal(), 0.0, []
    for step in range(steps):
        wander = 0.9 * wander + 0.06 * source.standard_normal()
        spike = 0.7 if source.random() < 0.02 else 0.0
        found.append(float(level + slope * step / 100 + wander + noise * source.standard_normal() + spike))
    return found


def episodes(numbers: Numbers, limit: float) -> int:
    """How often it came to be beyond a limit."""
    beyond = numbers > limit
    return int((beyond & ~np.append(False, beyond[:-1])).sum())


def limit_of(runs: Sequence[Numbers], seldom: int = SELDOM) -> float:
    """The least limit that healthy runs are beyond once in so many steps."""
    allowed = sum(map(len, runs)) / seldom
    tops = np.sort([numbers.max() for numbers in runs])[::-1]
    return next(float(top) for top in tops[::-1] if sum(episodes(numbers, top) for numbers in runs) <= allowed)


def delays(detector: Detector, limit: float, change: tuple[float, int, int]) -> list[float]:
    """Steps from the onset to the first that is beyond, of each play; infinite where none is in 60."""
    factor, onset, over = change
    found = []
    for seed in range(PLAYS):
        values = np.array(healthy(50_000 + seed, onset + 60))
        values[onset:] += math.log(factor) * np.minimum(1.0, np.arange(1, 61) / over)
        beyond = np.flatnonzero(detector(values.tolist())[onset:] > limit)
        found.append(float(beyond[0]) + 1 if len(beyond) else math.inf)
    return found


def published() -> Iterator[tuple[str, list[int], list[float], Mapping[str, int]]]:
    """Label, steps, log k3 and truth of the series."""
    for path in sorted(SERIES.glob("*.json")):
        document = json.loads(path.read_text())
        figures = document["figures"]
        path_of = next((name for name in figures if name in ("gaps.mismatch.k3", "gaps.total.k3")), "gaps.mismatch.k1")
        known = [(s, v) for s, v in zip(document["steps"], figures.get(path_of, ()), strict=False) if v]
        if known:
            truth = document["truth"]
            yield truth["label"], [s for s, _ in known], [math.log(abs(v)) for _, v in known], truth


def row(name: str, detector: Detector) -> str:
    """A row of the table: limit, false alarms on other healthy runs, delays, incidents in time, healthy series."""
    limit = limit_of([detector(healthy(seed)) for seed in range(RUNS)])
    false = sum(episodes(detector(healthy(10_000 + seed)), limit) for seed in range(RUNS))
    cells = [name, f"{limit:.3g}", f"{1000 * false / (RUNS * STEPS):.2f}"]
    cells += [told(delays(detector, limit, change)) for change in CHANGES]
    hits, wrong = 0, 0
    for label, steps, values, truth in published():
        beyond = [step for step, number in zip(steps, detector(values), strict=True) if number > limit]
        hits += label == "incident" and bool(beyond) and beyond[0] <= truth["alert_by"]
        wrong += label == "healthy" and bool(beyond)
    return f"| {' | '.join([*cells, f'{hits} of 8', f'{wrong} of 4'])} |"


def told(steps: Iterable[float]) -> str:
    """The usual delay, and the share of plays in which the change was found at all where that is not all."""
    known = list(steps)
    found, middle = sum(map(math.isfinite, known)), median(known)
    usual = f"{middle:.0f}" if math.isfinite(middle) else "never"
    return usual if found == len(known) else f"{usual} ({found} of {len(known)})"


def main() -> None:
    """Print the table."""
    heads = [f"x{factor:g} at {onset}" + (f" in {over}" if over > 1 else "") for factor, onset, over in CHANGES]
    head = ["test", "limit", "false alarms per 1,000", *heads, "incidents in time", "healthy series told of"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, detector in DETECTORS.items():
        print(row(name, detector), flush=True)


if __name__ == "__main__":
    main()
