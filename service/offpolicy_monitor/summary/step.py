"""StepSummary: everything that is kept of a shard, and, merged, of a gradient step.

A monoid: `StepSummary()` is the identity, `merge` is associative and commutative up to the rounding of float64 sums
(counts exactly), and the figures are a function of the value. It knows neither torch nor the database.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from typing import Any, Final

from offpolicy_monitor.summary.answer import OfGaps, gaps_told, methods_told, records_of
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.attribution import attribution
from offpolicy_monitor.summary.batch import BATCH
from offpolicy_monitor.summary.form import Dump, Told
from offpolicy_monitor.summary.gap import GapSummary, shown
from offpolicy_monitor.summary.histogram import Histograms
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.merge import merged
from offpolicy_monitor.summary.method import MethodSummary, Spec, method_keys
from offpolicy_monitor.summary.records import ALL, Wanted
from offpolicy_monitor.summary.remembered import Once
from offpolicy_monitor.summary.scheme import REMEMBERED, Scheme
from offpolicy_monitor.summary.sums import Sums, finite, fraction
from offpolicy_monitor.summary.tables import KINDS
from offpolicy_monitor.summary.tables.worst import Worst

#: Fields that are read off tables of a step alone.
DETAILS: Final[Mapping[str, Callable[[Arrays], Any]]] = {
    kind.name: kind.read for kind in KINDS if kind.read and not kind.of_shards
}
MARKS: Final = {kind.name: kind.marks for kind in KINDS if kind.marks}


@dataclass(frozen=True)
class StepSummary(Once):
    """The numbers that are kept (summary.layout says which), the specs of method rows by name, the worst sequences.

    A spec is None once rows of one name but different thresholds were merged: such figures would be of neither.
    """

    arrays: Arrays = field(default_factory=Arrays)
    specs: Mapping[str, Spec | None] = field(default_factory=dict)
    worst: Worst = field(default_factory=Worst)

    @classmethod
    def empty(cls) -> "StepSummary":
        """The summary of nothing: the identity of `merge`."""
        return cls()

    def merge(self, other: "StepSummary") -> "StepSummary":
        """The summary of both batches taken together."""
        return merge_all((self, other))

    @cached_property
    def batch(self) -> Sums:
        """Counts and sums over the whole batch, whatever the gap."""
        return self.arrays.record("batch")

    @cached_property
    def cross(self) -> Sums:
        """Second moments over tokens that are valid for all three gaps."""
        return self.arrays.record("cross")

    @cached_property
    def gaps(self) -> Mapping[str, GapSummary]:
        """The gaps whose log-probs were sent."""
        return {path.removeprefix("gaps/"): GapSummary.of(self.arrays, path) for path in self.arrays.under("gaps")}

    @property
    def gap_names(self) -> tuple[str, ...]:
        """Those of the gaps whose log-probs were sent."""
        return tuple(path.removeprefix("gaps/") for path in self.arrays.under("gaps"))

    @cached_property
    def gap_records(self) -> OfGaps:
        """What is kept of them in single numbers, side by side."""
        return records_of(self.arrays, self.gap_names)

    @cached_property
    def shown(self) -> Histograms:
        """Their histograms that are answered and exposed."""
        return shown(self.arrays)

    @cached_property
    def methods(self) -> Mapping[str, MethodSummary]:
        """What each method row would do."""
        return {name: MethodSummary.of(self.arrays, name, spec) for name, spec in self.specs.items()}

    def figures(self) -> dict[str, Any]:
        """Every figure that protocol.md names for a merged step, JSON-ready; absent figures are None or left out.

        Computed once; the dict is the caller's own, what it holds is shared and must not be changed.
        """
        return dict(self._figures)

    def step_figures(self, wanted: Wanted = ALL) -> dict[str, Any]:
        """`figures`, and what only a merged step answers; there may be more than is wanted, of gaps and methods."""
        return {**self.in_dicts(wanted), **{name: told.figures() for name, told in self.in_rows(wanted).items()}}

    @cached_property
    def _figures(self) -> dict[str, Any]:
        return {**self._of_batch(ALL), **{name: told.figures() for name, told in self.in_rows(ALL).items()}}

    def told(self, dump: Dump, fragment: Callable[[bytes], Any]) -> dict[str, Any]:
        """`figures` for an answer alone, without dicts: gaps and methods as what `fragment` makes of JSON."""
        return {**self._of_batch(ALL), **{name: fragment(told.text(dump)) for name, told in self.in_rows(ALL).items()}}

    def in_rows(self, wanted: Wanted) -> Mapping[str, Told]:
        """The figures of gaps and of method rows, all if they were made before; made once for each of `wanted`."""
        found = self._rows.get(ALL) or self._rows.get(wanted)
        if found is None:
            gaps = gaps_told(self.arrays, self.gap_names, self.gap_records, lambda: self.shown, wanted)
            found = self._rows[wanted] = {"gaps": gaps, "methods": methods_told(self.arrays, self.specs, wanted)}
        return found

    @property
    def has_rows(self) -> bool:
        """Whether the figures of gaps and of method rows were made, of any that are wanted."""
        return bool(self._rows)

    def in_dicts(self, wanted: Wanted) -> dict[str, Any]:
        """The figures of a merged step that are of neither gaps nor methods; made once for each of `wanted`."""
        if wanted not in self._dicts:
            details = {name: finite(read(self.arrays)) for name, read in DETAILS.items() if name in wanted}
            marks = {name: self._marks(marks, wanted) for name, marks in MARKS.items() if name in wanted}
            self._dicts[wanted] = {**self._of_batch(wanted), **details, **marks}
        return self._dicts[wanted]

    def _marks(self, marks: Mapping[str, Callable[[Arrays], Any]], wanted: Wanted) -> dict[str, Any]:
        found = {name: finite(read(self.arrays)) for name, read in marks.items() if name in wanted}
        return {name: figures for name, figures in found.items() if figures}

    @cached_property
    def _rows(self) -> dict[Wanted, Mapping[str, Told]]:
        return {}

    @cached_property
    def _dicts(self) -> dict[Wanted, dict[str, Any]]:
        return {}

    def _of_batch(self, wanted: Wanted) -> dict[str, Any]:
        """The same of a shard."""
        counts = {name: self._count(name) for name in _BATCH_COUNTS}
        return {
            **{name: counts[name] for name in ("tokens", "sequences", "empty_sequences")},
            "excluded_tokens": {"nonfinite": counts["nonfinite_tokens"]},
            "suspect_tokens": {"positive": counts["positive_tokens"], "exact_zero": counts["exact_zero_tokens"]},
            "zero_filled_tokens": counts["zero_filled_tokens"],
            "attribution": finite(attribution(self.cross)),
            **finite({**_batch_means(self.batch), **_of_shards(self.arrays, wanted)}),
        }

    def _count(self, name: str) -> int | None:
        """A count of the batch; None where an older shard lacks it, and 0 of nothing."""
        found = self.batch.get(name, None if self.batch else 0)
        return None if found is None else int(found)


_BATCH_COUNTS: Final = tuple(row.name for row in BATCH.rows)


def _of_shards(arrays: Arrays, wanted: Wanted) -> dict[str, Any]:
    """Left out where they have nothing to say, as a gap is that was not sent."""
    found = dict[str, Any]()
    for kind, read in _read_of_shards(arrays.scheme.base, wanted):
        if value := read(arrays):
            found |= value if kind.unnamed else {kind.name: value}
    return found


@lru_cache(REMEMBERED)
def _read_of_shards(base: Scheme, wanted: Wanted) -> Sequence[tuple[Kind, Callable[[Arrays], Any]]]:
    """Those that are wanted and may have something to say: not of a kind that has tables, and none of them here."""
    here = {table.declared for table in base.tables.values()}
    return [
        (kind, kind.read)
        for kind in KINDS
        if kind.read and kind.of_shards and (kind.unnamed or kind.name in wanted)
        if not kind.tables or any(table.of_shard or table.key in here for table in kind.tables)
    ]


def merge_all(summaries: Iterable[StepSummary]) -> StepSummary:
    """Merge from left to right in the order given, so that equal orders give bit-equal sums; one alone is itself."""
    parts = list(summaries)
    if len(parts) == 1:
        return parts[0]
    specs = _specs(parts)
    mixed = [key for name, spec in specs.items() if spec is None for key in method_keys(name)]
    arrays = merged([part.arrays for part in parts]).without(mixed)
    return StepSummary(arrays, specs, reduce(Worst.merge, (part.worst for part in parts), Worst()))


def _specs(parts: Sequence[StepSummary]) -> dict[str, Spec | None]:
    specs: dict[str, Spec | None] = {}
    for part in parts:
        for name, spec in part.specs.items():
            known = specs.setdefault(name, spec)
            if known is not spec and known != spec:
                specs[name] = None
    return specs


def _batch_means(batch: Sums) -> dict[str, Any]:
    """Figures of the batch that belong to no gap; each is left out where its array was not sent."""
    filled = batch.get("sequences", 0) - batch.get("empty_sequences", 0)
    figures: dict[str, Any] = {"sequence_length_mean": fraction(batch.get("tokens", 0), filled)}
    if batch.get("lag_tokens"):
        figures["policy_lag"] = {"mean": batch["lag"] / batch["lag_tokens"], "max": batch["lag_max"]}
    if batch.get("entropy_tokens"):
        figures["entropy_mean"] = batch["entropy"] / batch["entropy_tokens"]
    if batch.get("reward_sequences"):
        figures["reward_mean"] = batch["reward"] / batch["reward_sequences"]
    return {name: value for name, value in figures.items() if value is not None}
