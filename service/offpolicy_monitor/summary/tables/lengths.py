"""Length bias: whether a rule drops long answers more often than short ones, read off tables by length.

Lengths stand in bins of a quarter of a power of two. The unit is the sequence for rules on whole sequences, and the
token for the others: each unit is dropped or not, and has the length of its sequence.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.pairs import Pairs, correlations
from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.faults import need
from offpolicy_monitor.summary.kind import Kind, Looked, OfMethods
from offpolicy_monitor.summary.records import Figures, Floats, Wanted
from offpolicy_monitor.summary.scheme import REMEMBERED, Scheme

if TYPE_CHECKING:
    from offpolicy_monitor.core.cells import Tally
    from offpolicy_monitor.measure.view import BlockView
    from offpolicy_monitor.summary.checks.facts import Facts
    from offpolicy_monitor.summary.checks.glance import Glance

Indices = NDArray[np.int64]

BINS_PER_POWER: Final = 4
BINS: Final = 64 * BINS_PER_POWER
#: From which length on the sequences of a bin are, and to which.
_EDGES: Final = np.array([2 ** (index / BINS_PER_POWER) for index in range(BINS + 1)])
QUARTILE: Final = 0.25
UNITS: Final = ("sequences", "tokens")

TABLES: Final = (
    *(
        schema.Table(
            f"length/{{gap}}/{unit}",
            (schema.count("", f"{unit} by length", BINS, total=f"gaps/{{gap}}/{unit}"),),
            "the gap's tokens by the length of their sequence",
            needs=(schema.OF_GAP,),
            required=True,
        )
        for unit in UNITS
    ),
    *(
        schema.Table(
            f"masked/{{row}}/{{gap}}/{unit}",
            (schema.count("", f"dropped {unit} by length", BINS, total=f"methods/{{row}}/masked_{unit}"),),
            "what a method row drops by length",
            needs=(schema.OF_GAP,),
            when=f"a rule that drops {unit}",
        )
        for unit in UNITS
    ),
)


class _Rows(NamedTuple):
    """Method rows of which is known what they drop by length, R of them: name, gap and unit of each.

    begins  [3, R] where begin, among counts, what the row drops, what there is of its unit, and of sequences
    units   where begins what there is of a unit, of any rows: so many bins are added, whichever rows are asked for
    tokens  gap -> where its tokens by length begin
    """

    rows: tuple[tuple[str, str, str], ...]
    begins: Indices
    units: Indices
    tokens: Mapping[str, int]


#: The field of a method row.
LENGTH_BIAS: Final = "length_bias"
NOTHING: Final = OfMethods((), {}, lambda tokens: [], lambda number, figures: figures, ())


def length_biases(arrays: Arrays, names: tuple[str, ...], wanted: Wanted) -> OfMethods:
    """Those of these rows that drop, and their `spearman`, `slope`, `shortest`, `longest`, `ratio` and `difference`.

    `spearman` is the rank correlation of dropped (0/1) with length, equal lengths within a bin; `slope` the
    least-squares slope of dropped on log2 length; `shortest` and `longest` the share dropped in the shortest and the
    longest quarter of the sequences, `ratio` and `difference` the latter over and less the former.

    They tell of a row only if it ran on all tokens of its gap: lengths are kept of all shards together, and do not say
    which were those of the shards that ran it.
    """
    if LENGTH_BIAS not in wanted:
        return NOTHING
    known = _rows(arrays.scheme.base, names)
    if not known.rows:
        return NOTHING
    whole = {gap: int(arrays.counts_between(begin, begin + BINS).sum()) for gap, begin in known.tokens.items()}
    bins = np.flatnonzero(arrays.counts_at(known.units[:, None] + np.arange(BINS)).any(0))
    return OfMethods(
        tuple(row for row, _, _ in known.rows),
        _biases(bins, *arrays.counts_at(known.begins[:, :, None] + bins).astype(np.float64)),
        lambda tokens: [tokens.get(row) == whole[gap] for row, gap, _ in known.rows],
        lambda number, figures: {LENGTH_BIAS: {"unit": known.rows[number][2], **figures}},
        known.rows,
    )


@lru_cache(REMEMBERED)
def _rows(scheme: Scheme, names: tuple[str, ...]) -> _Rows:
    known = [(path, *path.split("/")[1:]) for path in scheme.under("masked")]
    known = [(path, row, gap, unit) for path, row, gap, unit in known if f"length/{gap}/tokens" in scheme.spans]
    units = {scheme.spans[f"length/{gap}/{unit}"].start for _, _, gap, unit in known}
    known = [(path, row, gap, unit) for path, row, gap, unit in known if unquote(row) in names]
    arrays = [(path, f"length/{gap}/{unit}", f"length/{gap}/sequences") for path, _, gap, unit in known]
    begins = np.array([[scheme.spans[name].start for name in of_row] for of_row in arrays], np.int64).reshape(-1, 3).T
    return _Rows(
        tuple((unquote(row), gap, unit) for _, row, gap, unit in known),
        begins,
        np.array(sorted(units), np.int64),
        {gap: scheme.spans[f"length/{gap}/tokens"].start for _, _, gap, _ in known},
    )


def _biases(bins: Indices, masked: Floats, units: Floats, sequences: Floats) -> Figures:
    """The figures of R rows by what there is, and what each drops, in B bins of length: [R, B] each."""
    ranks = units.cumsum(1) - (units - 1) / 2
    ranked, of_log = _pairs(units, ranks, masked), _pairs(units, (bins + 0.5) / BINS_PER_POWER, masked)
    low = _share(units, masked, sequences)
    high = _share(units[:, ::-1], masked[:, ::-1], sequences[:, ::-1])
    return {
        "spearman": correlations(ranked.xx, ranked.xy, ranked.yy),
        "slope": np.where(of_log.xx > 0, of_log.slope, np.nan),
        "shortest": low,
        "longest": high,
        "ratio": high / low,
        "difference": high - low,
    }


def _pairs(units: Floats, values: Floats, dropped: Floats) -> Pairs[Floats]:
    """Of each row, (value of its bin, dropped) of every unit; dropped is 0 or 1, so that its mean tells its spread."""
    count = units.sum(1)
    mean, share = (units * values).sum(1) / count, dropped.sum(1) / count
    apart = values - mean[:, None]
    xx, xy = (units * apart**2).sum(1), ((dropped - units * share[:, None]) * apart).sum(1)
    return Pairs(count, mean, share, xx, xy, count * share * (1 - share))


def _share(units: Floats, dropped: Floats, sequences: Floats) -> Floats:
    """[R] the share dropped of the first quarter of all sequences, bins in that order; one may count in part."""
    before = sequences.cumsum(1) - sequences
    left = np.minimum(np.maximum(QUARTILE * sequences.sum(1, keepdims=True) - before, 0.0), sequences)
    part = left / np.maximum(sequences, 1)
    counted = (units * part).sum(1)
    return np.where(counted > 0, (dropped * part).sum(1) / counted, 0.0)


def sums_of(view: "BlockView") -> "dict[str, Tally]":
    """[1, G + G + rows, bins]: sequences and tokens by length, and what rows drop, in what they decide about."""
    import torch

    from offpolicy_monitor.core.cells import Tally
    from offpolicy_monitor.core.gap import chosen

    gaps, counts = view.number, view.own(view.gaps.counts)
    weights, gap_indices = [view.own(view.gaps.filled), counts], [*range(gaps), *range(gaps)]
    if view.dropped is not None:
        of_tokens, whole = view.decided
        weights.append(view.dropped[0, : 0 if of_tokens is None else len(of_tokens.drops)])
        weights += [] if whole is None else [whole.dropped]
        gap_indices += [placed.gap for placed in view.decided.drops]
    return {"lengths": Tally(chosen(view.length_bins, gap_indices), BINS, (torch.cat(weights),))}


def tables_of(arrays: Mapping[str, Array], view: "BlockView") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The length tables of gaps with a token."""
    gaps, tokens, rows = view.block.batch.gaps, arrays["gaps/tokens"], view.decider.rows
    [counted] = arrays["lengths"]
    sequences, of_tokens, masked = np.split(counted, [len(gaps), 2 * len(gaps)])
    for index, gap in enumerate(gaps):
        if tokens[index]:
            yield f"length/{gap}/sequences", {"": sequences[index]}
            yield f"length/{gap}/tokens", {"": of_tokens[index]}
    units = [UNITS[not group.whole] for group in view.decided.groups for _ in group.drops]
    for placed, unit, counts in zip(view.decided.drops, units, masked, strict=True):
        row = rows[placed.row]
        if tokens[gaps.index(row.gap)]:
            yield f"masked/{quote(row.name, safe='')}/{row.gap}/{unit}", {"": counts}


def _check(facts: "Facts", parts: Sequence[str], path: str) -> None:
    *_, gap, unit = parts
    if parts[0] == "length":
        _check_lengths(facts, gap, unit, path)
        return
    units = facts.arrays[f"length/{gap}/{unit}"] if f"length/{gap}/{unit}" in facts.arrays else np.zeros(1)
    fits = bool((facts.arrays["/".join(parts)] <= units).all())
    need(fits, path, f"is more than all {unit} of a length")


def _check_lengths(facts: "Facts", gap: str, unit: str, path: str) -> None:
    if unit == "sequences" or f"length/{gap}/sequences" not in facts.arrays:
        return
    sequences, tokens = (facts.arrays[f"length/{gap}/{kind}"] for kind in ("sequences", "tokens"))
    need(bool(((sequences != 0) == (tokens != 0)).all()), path, "has lengths of no sequence")
    # A bin holds lengths from 2^(index / 4) on; rounding of the logarithm may move a length by one part in 10^6.
    least, most = sequences * _EDGES[:-1], sequences * _EDGES[1:]
    near = (np.floor(least * (1 - 1e-6)) <= tokens) & (tokens <= np.ceil(most * (1 + 1e-6)))
    for index in np.flatnonzero(~near):
        need(False, f"{path}.{index}", "does not fit the lengths of its sequences")


def _see(scheme: Scheme, glance: "Glance[Looked]", looked: Looked) -> bool:
    name, *_, gap, unit = looked[1]
    whole = scheme.spans.get(f"length/{gap}/{unit}")
    if name == "length" or whole is None:
        return False
    glance.each_of(looked, scheme.spans["/".join(looked[1])], whole)
    return True


KIND: Final = Kind(
    "lengths", TABLES, measured=__name__, ingested=True, check=_check, see=_see, of_methods=length_biases
)
