"""The machine code of the pass: in which folder it is kept, and the trial that makes or loads all of it.

numba compiles a function when it is first called with arrays of some types; the types here are always the same ones, so
that one small batch brings about everything. Who calls this decides when, and in which process (measure.compilation).
"""

from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core.caching import UserProvidedCacheLocator

from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import held, inspection, moves, outward, routing, runs, tokens, totals, worst
from offpolicy_monitor.fused.batch import MOST_SHORT, Batch
from offpolicy_monitor.fused.results import Size, sums_length, sums_of
from offpolicy_monitor.fused.summarise import summarise
from offpolicy_monitor.methods import ON_REQUEST, PRESETS
from offpolicy_monitor.vocabulary import EXPERT_IDS, LOGPROBS

#: The functions that Python calls; what they call is in their machine code.
ENTRIES: Final[tuple[Any, ...]] = (
    held.hold,
    inspection.inspect,
    inspection.inspect_short,
    routing.compare,
    runs.buckets_of,
    runs.version_sums,
    tokens.measure,
    totals.add,
    totals.finish,
    totals.finish_short,
    outward.count,
    moves.move,
    worst.find,
    worst.find_short,
)

#: Of a short batch, and of one that is not.
_TOKENS: Final = (64, 2 * MOST_SHORT)
_ONE: Final = Size(1, 1, 1, 1, 1, 1)


class ByModule(UserProvidedCacheLocator):
    """Where numba looks for a function in a folder: by its module, wherever this package is installed."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The folder in that folder."""
        return Path(py_file).parent.name

    def get_source_stamp(self) -> str:
        """One for all: of which sources a folder is, who chooses the folder has to know."""
        return ""


def keep_in(folder: Path) -> None:
    """From now on what is compiled is kept in the folder, and what is there is loaded instead; called once, first."""
    config: Any = numba.config
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = str(folder), f"{ByModule.__module__}.{ByModule.__name__}"
    try:
        for entry in ENTRIES:
            entry.enable_caching()
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before


def allow_many_columns() -> None:
    """LLVM vectorises a loop over some columns only if it may test at run time that they are apart from one another.

    A setting of the whole process, so made only in one that does nothing but compile.
    """
    llvm.set_option("", "-runtime-memory-check-threshold=1000")


def try_all() -> None:
    """Run every compiled function once."""
    for size in _TOKENS:
        batch = _with_all_there_is(size)
        loaded = Batch(batch, Origin(9))
        found = summarise(loaded, (*PRESETS, *ON_REQUEST))
        worst.worst(batch, loaded.logprobs, found.gaps, found.ranking, 1)
    one, other = (sums_of(_ONE, np.zeros(sums_length(_ONE))) for _ in range(2))
    totals.add(one, other)


def _with_all_there_is(tokens: int) -> RaggedBatch:
    """A batch with a hole, and with much for M2PO to cut."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {
        name: -random.standard_exponential(tokens, np.float32) * np.float32(3) for name in LOGPROBS
    }
    columns["logprobs"][5], columns["sampling_logprobs"][9] = np.nan, 0.5
    columns |= {name: random.integers(0, 9, (tokens, 2, 5), np.uint8) for name in EXPERT_IDS}
    columns["policy_versions"] = columns["turns"] = np.arange(tokens) * 8 // tokens
    lengths = np.full(4, tokens // 4, np.int64)
    advantages = np.array([-1.0, 0.0, 1.0, 2.0], np.float32)
    return RaggedBatch.from_positions(lengths, columns, {"advantages": advantages})
