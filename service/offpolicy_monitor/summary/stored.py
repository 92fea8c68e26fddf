"""The stored form of a StepSummary: a byte with the version, then its numbers and names as summary.packing packs them.

A reader accepts every version ever written (`_READERS`); a writer writes the newest. 7 to 32 KB a shard.
"""

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from offpolicy_monitor.errors import OffpolicyMonitorError
from offpolicy_monitor.summary.gap import GapSummary
from offpolicy_monitor.summary.histogram import Histogram
from offpolicy_monitor.summary.method import MethodSummary
from offpolicy_monitor.summary.packing import pack, unpack
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables.worst_stored import from_tree as worst_from_tree
from offpolicy_monitor.summary.tables.worst_stored import to_tree

VERSION: Final = 2


class StoredSummaryError(OffpolicyMonitorError):
    """Bytes that hold no summary, or one written by a newer release."""


def to_bytes(summary: StepSummary) -> bytes:
    """Write a summary; `from_bytes` gives back an equal one, bit for bit."""
    tree: dict[str, Any] = {
        "batch": summary.batch,
        "cross": summary.cross,
        "gaps": {
            name: {"sums": gap.sums, "histograms": {key: h.to_stored() for key, h in gap.histograms.items()}}
            for name, gap in summary.gaps.items()
        },
        "methods": {name: method.sums for name, method in summary.methods.items()},
        "tables": summary.tables,
    }
    tree["worst"], ids = to_tree(summary.worst)
    texts = {"specs": {name: method.spec for name, method in summary.methods.items()}, "worst": ids}
    return bytes([VERSION]) + pack(tree, texts)


def from_bytes(stored: bytes) -> StepSummary:
    """Read a summary of any version; StoredSummaryError where the bytes are not one."""
    try:
        return _READERS[stored[0]](stored)
    except (zlib.error, struct.error, ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise StoredSummaryError(f"not a summary that this release can read: {error!r}") from error


def _read_version_2(stored: bytes) -> StepSummary:
    return from_tree(*unpack(stored[1:]))


def from_tree(tree: Mapping[str, Any], texts: Mapping[str, Any]) -> StepSummary:
    """The summary of an unpacked tree of the newest version and the texts beside it; any error where it is none."""
    gaps = {
        name: GapSummary(gap["sums"], {key: Histogram.from_stored(counts) for key, counts in gap["histograms"].items()})
        for name, gap in tree["gaps"].items()
    }
    methods = {name: MethodSummary(texts["specs"][name], sums) for name, sums in tree["methods"].items()}
    worst = worst_from_tree(tree.get("worst", {}), texts.get("worst", []))
    return StepSummary(tree["batch"], gaps, methods, tree["cross"], tree["tables"], worst)


def _read_version_1(stored: bytes) -> StepSummary:
    """Compressed JSON."""
    content = json.loads(zlib.decompress(stored))
    if content["version"] != 1:
        raise ValueError(f"version {content['version']!r}")
    gaps = {
        name: GapSummary(
            gap["sums"], {key: Histogram.from_stored_1(counts) for key, counts in gap["histograms"].items()}
        )
        for name, gap in content["gaps"].items()
    }
    methods = {name: MethodSummary(method["spec"], method["sums"]) for name, method in content["methods"].items()}
    return StepSummary(content["batch"], gaps, methods, content["cross"], content.get("tables", {}))


#: By the first byte; version 1 has none of its own, and begins as zlib does.
_READERS: Final[Mapping[int, Callable[[bytes], StepSummary]]] = {0x78: _read_version_1, 2: _read_version_2}
