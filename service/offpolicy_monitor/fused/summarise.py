"""RaggedBatch -> Arrays by the pass: its parts are measured, and what each came to is moved to where a summary has it.

Where that is follows from which parts there are and from which of their tables, and is found once for all such batches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.fused import outward, routing, runs
from offpolicy_monitor.fused.batch import Batch
from offpolicy_monitor.fused.dimensions import CONSTANT
from offpolicy_monitor.fused.measured import Left, measured
from offpolicy_monitor.fused.moves import Moves, move, moves_of
from offpolicy_monitor.fused.parts import Part, Rows, Workspace, applicable, asked
from offpolicy_monitor.fused.results import WHOLE, Whole, flat_lengths, needs, slots
from offpolicy_monitor.fused.tables import Named, empty_tables, tables_of, whole_tables
from offpolicy_monitor.fused.threads import ALONE, Threads
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.slices import Slices, finished
from offpolicy_monitor.summary.arrays import Arrays, Sparse, room_for_fractions
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.merge import merged
from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.scheme import MOST_WEIGHT, Scheme, scheme_of
from offpolicy_monitor.summary.tables import calibration, decimals
from offpolicy_monitor.summary.tables.buckets import constant_buckets
from offpolicy_monitor.vocabulary import EXPERT_IDS, GAPS

Array = NDArray[Any]

#: Ways of reading at hand: those of a run's shards come back with every step.
REMEMBERED: Final = 64
_CONSTANT: Final = f"breakdown/{CONSTANT}/"


class Summarised(NamedTuple):
    """A summary's arrays, the specs of the rows that ran, and the figures by which sequences are the worst.

    ranking [4, 3, S]: valid tokens, max |d|, mean d and the sum of k3 by gap, 0 of one that was not sent;
    parts: what is left of the tokens that are valid for the same gaps.
    """

    arrays: Arrays
    specs: Mapping[str, Any]
    gaps: Sequence[str]
    ranking: Array
    parts: Sequence[Left]


def summarise(batch: Batch, rows: Sequence[MethodRow], threads: Threads = ALONE) -> Summarised:
    """The arrays of a batch. Rows whose inputs were not sent are left out."""
    own = applicable(asked(rows), batch.gaps, batch.has_advantages)
    return finished(in_slices(batch, own, Part.of, reading_of, threads))


def in_slices(
    batch: Batch,
    own: Rows,
    part_of: Callable[..., Part],
    reading_of: Callable[..., "Reading"],
    threads: Threads = ALONE,
    experts: bool = True,
) -> Slices[Summarised]:
    """The same of rows whose inputs were sent, in slices; of experts only where these are asked for.

    What is remembered is up to `part_of` and `reading_of`.
    """
    constants = tuple(constant_buckets(batch.origin.shard, batch.origin.labels))
    kind = batch.kind(len(constants))
    buckets = batch.buckets(len(constants))
    nothing = part_of(kind, own, (), False, True)
    ranking = np.zeros((4, len(GAPS), batch.source.sequences))
    found = []
    for chosen in batch.parts():
        part = part_of(kind, own, chosen.gaps, chosen.joint, chosen.alone)
        found.append((yield from measured(batch, part, chosen, buckets, ranking, threads)))
    whole, there, beside = _of_batch(batch)
    read = reading_of(nothing, tuple((one.part, one.present) for one in found), there)
    came = [(one.part, one.seen, one.room) for one in found] or [(nothing, 0, nothing.workspace())]
    arrays = read.arrays(read.scheme(constants), came, whole)
    arrays.sparse.update(beside)
    if routed := dict(_routing(batch, threads)) if experts else {}:
        arrays = merged((arrays, Arrays.of(LAYOUT, routed)))
    for one in found:
        if one.part.outward:
            yield
            arrays = merged((arrays, Arrays.of(LAYOUT, dict(outward.tables_of(one.part, one.left.tokens)))))
    left = [one.left for one in found]
    return Summarised(arrays, own.specs, kind.gaps, ranking, left)


@dataclass(frozen=True, eq=False)
class Reading:
    """Where the tables of some parts have their numbers.

    keys    of tables; those of the dimensions in which a whole shard is one bucket come last
    moves   of each part, or of one without a token; those of the first are also of the whole batch
    """

    keys: tuple[str, ...]
    constant: tuple[tuple[int, str], ...]
    moves: Sequence[Moves]

    def scheme(self, constants: tuple[tuple[str, str], ...]) -> Scheme:
        """The scheme of the tables where the whole shard is in these buckets of dimensions."""
        return _scheme(self, constants)

    def arrays(self, scheme: Scheme, parts: Sequence[tuple[Part, int, Workspace]], whole: Sequence[float]) -> Arrays:
        """What the parts came to and saw, moved out of the room that it lay in, which is given back."""
        fractions, values, found = room_for_fractions(scheme), np.array(whole, np.float64), []
        for moves, (part, seen, room) in zip(self.moves, parts, strict=True):
            number = move(moves, *room.flats, values, seen, fractions, *room.filled)
            where, counts = room.filled[:, :number].copy()
            found.append((where, counts))
            part.give_back(room)
        return Arrays.filled_at(scheme, found[0] if len(found) == 1 else _ascending(found), fractions)


@remembering(lambda scheme, *asked: scheme.weight, MOST_WEIGHT)
def _scheme(reading: Reading, constants: tuple[tuple[str, str], ...]) -> Scheme:
    """Remembered by what it is made of, which is less to compare than all of its keys."""
    paths = [f"breakdown/{dimension}/{bucket}" for dimension, bucket in constants]
    return scheme_of(LAYOUT, (*reading.keys, *[f"{paths[number]}/{rest}" for number, rest in reading.constant]))


def _ascending(filled: Sequence[Sparse]) -> Sparse:
    """All of them in the order of where they stand."""
    where, counts = map(np.concatenate, zip(*filled, strict=True))
    order = np.argsort(where, kind="stable")
    return where[order], counts[order]


def reading(nothing: Part, parts: tuple[tuple[Part, int], ...], there: tuple[tuple[str, bool], ...]) -> Reading:
    """The reading of parts with the tables that are present in each; `nothing` has the rows and the gaps of all."""
    first, begins = 1, []
    tables: dict[str, Any] = {}
    for part, present in parts:
        begins.append(first)
        tables |= dict(tables_of(Named(part, slots(part.size, first), present)))
        first += sum(flat_lengths(part.size))
    tables |= dict(empty_tables([part for part, _ in parts], nothing))
    tables |= dict(whole_tables(dict(zip(WHOLE, range(first, first + len(WHOLE)), strict=True)), dict(there)))
    ordered = dict.fromkeys((*(f"gaps/{gap}" for gap in nothing.kind.gaps), *tables))
    last = [key for key in ordered if key.startswith(_CONSTANT)]
    keys = tuple(key for key in ordered if not key.startswith(_CONSTANT))
    where = Arrays.of(LAYOUT, {key: tables[key] for key in (*keys, *last)})
    alone = first + len(WHOLE)
    moved = [(begin, part) for begin, (part, _) in zip(begins, parts, strict=True)] or [(alone, nothing)]
    whole = (first, len(WHOLE))
    moves = [
        moves_of(where, begin, flat_lengths(part.size)[0], needs(part.size), (0, 0) if index else whole)
        for index, (begin, part) in enumerate(moved)
    ]
    named = (key.removeprefix(_CONSTANT).partition("/") for key in last)
    return Reading(keys, tuple((int(number), rest) for number, _, rest in named), moves)


reading_of: Final = lru_cache(REMEMBERED)(reading)


def _of_batch(batch: Batch) -> tuple[tuple[Any, ...], tuple[tuple[str, bool], ...], dict[str, Sparse]]:
    """What was sent, and how old it is; which tables there are of it; the rows of no fixed length among them."""
    source, found = batch.source, batch.inspected
    (filled, longest, as_long), places = found.lengths, found.decimals.ravel().tolist()
    sent = source.tokens, source.sequences, source.sequences - filled
    entropy, reward = (_finite(source.columns.get(name)) for name in ("entropy", "rewards"))
    spans, mean, lags = _versions(batch)
    calibrated = calibration.calibration_sums(source.columns, batch.offsets)
    there = {"entropy": entropy[0] > 0, "reward": reward[0] > 0, "spans": spans[1] > 0, "lag": lags is not None}
    there |= {"longest": longest > 0, calibration.PART: bool(calibrated), decimals.PART: any(places)}
    whole = Whole._make((*sent, *found.suspects, *entropy, *reward, *spans, mean, filled))
    beside = *(calibrated.get(row.name, 0) for row in calibration.TABLE.rows), *places
    sparse = {} if lags is None else {"versions/lag": lags}
    if longest:
        sparse["longest/at"] = np.array([longest]), np.array([as_long])
    return (*whole, *beside), tuple(there.items()), sparse


def _versions(batch: Batch) -> tuple[tuple[Any, ...], float, Sparse | None]:
    """The first five of runs.version_sums, the sum of sequences' mean lags, and sequences by whole lag."""
    versions, policy = batch.versions(), batch.origin.policy_version
    if versions is None:
        return (0,) * 5, 0.0, None
    *spans, means = runs.version_sums(batch.offsets, *versions, policy or 0)
    known = means[~np.isnan(means)]
    if policy is None or not len(known):
        return tuple(spans), 0.0, None
    return tuple(spans), known.sum(), np.unique(np.floor(known).astype(np.int64), return_counts=True)


def _finite(values: Array | None) -> tuple[int, float]:
    """How many are finite, and their sum."""
    if values is None:
        return 0, 0.0
    finite = values[np.isfinite(values)]
    return len(finite), float(finite.sum(dtype=np.float64))


def _routing(batch: Batch, threads: Threads) -> Iterator[tuple[str, Any]]:
    return routing.counted(batch.logprobs, [batch.source.columns.get(name) for name in EXPERT_IDS], threads)
