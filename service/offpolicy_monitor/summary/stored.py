"""The stored form of a StepSummary: zlib-compressed JSON with a version, floats as their shortest exact decimals.

A reader accepts every version ever released (`_READERS`); a writer writes the newest. 7 to 32 KB a shard.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from offpolicy_monitor.errors import OffpolicyMonitorError
from offpolicy_monitor.summary.gap import GapSummary
from offpolicy_monitor.summary.histogram import Histogram
from offpolicy_monitor.summary.method import MethodSummary
from offpolicy_monitor.summary.step import StepSummary

VERSION: Final = 1
COMPRESSION_LEVEL: Final = 6  # level 9 saves another 3 % of the bytes for four times the time


class StoredSummaryError(OffpolicyMonitorError):
    """Bytes that hold no summary, or one written by a newer release."""


def to_bytes(summary: StepSummary) -> bytes:
    """Write a summary; `from_bytes` gives back an equal one, bit for bit."""
    content = {
        "version": VERSION,
        "batch": summary.batch,
        "cross": summary.cross,
        "gaps": {
            name: {"sums": gap.sums, "histograms": {key: h.to_stored() for key, h in gap.histograms.items()}}
            for name, gap in summary.gaps.items()
        },
        "methods": {name: {"spec": m.spec, "sums": m.sums} for name, m in summary.methods.items()},
        "tables": summary.tables,
    }
    return zlib.compress(json.dumps(content, separators=(",", ":"), allow_nan=False).encode(), COMPRESSION_LEVEL)


def from_bytes(stored: bytes) -> StepSummary:
    """Read a summary of any released version; StoredSummaryError where the bytes are not one."""
    try:
        content = json.loads(zlib.decompress(stored))
        return _READERS[content["version"]](content)
    except (zlib.error, ValueError, TypeError, LookupError, AttributeError) as error:
        raise StoredSummaryError(f"not a summary that this release can read: {error!r}") from error


def _read_version_1(content: Mapping[str, Any]) -> StepSummary:
    gaps = {
        name: GapSummary(gap["sums"], {key: Histogram.from_stored(counts) for key, counts in gap["histograms"].items()})
        for name, gap in content["gaps"].items()
    }
    methods = {name: MethodSummary(method["spec"], method["sums"]) for name, method in content["methods"].items()}
    return StepSummary(content["batch"], gaps, methods, content["cross"], content.get("tables", {}))


_READERS: Final[Mapping[int, Callable[[Mapping[str, Any]], StepSummary]]] = {1: _read_version_1}
