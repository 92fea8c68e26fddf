"""Version 1 of the stored form: compressed JSON, which has no byte of its own for its version."""

import json
import zlib
from itertools import accumulate
from typing import Any

from offpolicy_monitor.summary.histogram import BINS
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.stored.named import Parts, summary_of


def read(stored: bytes) -> StepSummary:
    """Read a summary; any error where the bytes are none."""
    content = json.loads(zlib.decompress(stored))
    if content["version"] != 1:
        raise ValueError(f"version {content['version']!r}")
    return summary_of(
        Parts(
            content["batch"],
            {name: gap["sums"] for name, gap in content["gaps"].items()},
            {name: {key: _counts(h) for key, h in gap["histograms"].items()} for name, gap in content["gaps"].items()},
            {name: method["sums"] for name, method in content["methods"].items()},
            {name: method["spec"] for name, method in content["methods"].items()},
            content["cross"],
            content.get("tables", {}),
        )
    )


def _counts(stored: Any) -> list[int]:
    """Steps from one filled bin to the next (the first from -1), and their counts."""
    counts = [0] * BINS
    steps, filled = stored
    for index, number in zip(accumulate(steps), filled, strict=True):
        counts[index - 1] = number
    return counts
