"""The fused pass as measure's other form: which batches it takes, and its arrays as the summary that torch would give.

It runs on the CPU, once it is compiled or loaded; never unasked in a trainer.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import library
from offpolicy_monitor.measure.worst import worst_of
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.slices import Slices
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.evaluation import Detail, Evaluation
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables import KINDS
from offpolicy_monitor.summary.tables.worst import Worst
from offpolicy_monitor.vocabulary import LOGPROBS

#: The kinds of tables that the pass makes; torch makes the others beside it.
IN_PASS: Final = frozenset(
    {"breakdowns", "versions", "advantages", "signature", "routing", "anchors", "lengths", "whatif", "densities"}
)
#: Arrays of which torch makes tables beside the pass.
BESIDE_PASS: Final[frozenset[str]] = frozenset().union(
    *(kind.sent for kind in KINDS if kind.measured and kind.name not in IN_PASS)
)

#: Adds to the arrays of a batch the tables that the pass does not make.
Further = Callable[[Arrays], Arrays]


class Fused(Protocol):
    """The pass, ready to be used."""

    def __call__(
        self, batch: RaggedBatch, rows: Sequence[MethodRow], origin: Origin, keep_worst: int | None
    ) -> StepSummary | None:
        """The summary of a batch, of tables those IN_PASS; with its worst sequences unless `keep_worst` is None.

        None where the batch is none for it, or a row compares a score that it does not have.
        """

    def evaluation(
        self, batch: RaggedBatch, rows: Sequence[MethodRow], detail: Detail, origin: Origin, further: Further
    ) -> Slices[Evaluation] | None:
        """The answer of /v1/evaluate; None where the batch, or a row, is none for the pass."""


def fused_pass(threads: int) -> Callable[[Path], Fused | None]:
    """What loads the pass from the folder of compiled ones, to be run on so many threads; None if it is not there."""

    def load(cache: Path) -> Fused | None:
        found = library.find_pass(cache)
        if found is None:
            return None
        from offpolicy_monitor.fused import compiled

        compiled.keep_in(found)
        compiled.try_all()
        return fused(threads)

    return load


def fused(threads: int = 1) -> Fused:
    """The pass as it is: what is not compiled yet is compiled when it is first called."""
    from offpolicy_monitor.fused.bands import compares
    from offpolicy_monitor.fused.batch import Batch
    from offpolicy_monitor.fused.evaluate import evaluation
    from offpolicy_monitor.fused.parts import are_known, asked
    from offpolicy_monitor.fused.summarise import summarise
    from offpolicy_monitor.fused.threads import Threads
    from offpolicy_monitor.fused.worst import worst

    class Pass:
        """The pass on its threads; those of an evaluation are one."""

        def __init__(self) -> None:
            self._threads = Threads(threads)

        def __call__(
            self, batch: RaggedBatch, rows: Sequence[MethodRow], origin: Origin, keep_worst: int | None
        ) -> StepSummary | None:
            if not single(batch) or not (loaded := Batch(batch, origin)).fits:
                return None
            if not are_known(asked(rows), loaded.gaps):
                return None
            found = summarise(loaded, rows, self._threads)
            if keep_worst is None:
                return StepSummary(found.arrays, found.specs)
            ranked, tokens = worst(batch, loaded.logprobs, found.gaps, found.ranking, keep_worst)
            first = worst_of(batch, ranked, tokens, origin.shard, keep_worst) if len(ranked.sequences) else Worst()
            return StepSummary(found.arrays, found.specs, first)

        def evaluation(
            self, batch: RaggedBatch, rows: Sequence[MethodRow], detail: Detail, origin: Origin, further: Further
        ) -> Slices[Evaluation] | None:
            if not single(batch) or not (loaded := Batch(batch, origin)).fits or not all(map(compares, rows)):
                return None
            return evaluation(loaded, rows, detail, further)

    return Pass()


def single(batch: RaggedBatch) -> bool:
    """Whether log-probs and advantages are float32: float64 is torch's work."""
    names = {*LOGPROBS, "advantages"} & batch.columns.keys()
    return all(batch.columns[name].dtype == np.float32 for name in names)
