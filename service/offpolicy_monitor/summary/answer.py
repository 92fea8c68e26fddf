"""The figures of gaps and of method rows, as numbers and the form in which they are answered.

Each is computed for all gaps, or all rows, at once; the form is that of the shard before, unless other gaps, or rows,
have something to tell.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.form import Form, Told, row, slots_of
from offpolicy_monitor.summary.gap import OF_SEQUENCES, OF_TOKENS
from offpolicy_monitor.summary.histogram import Histograms
from offpolicy_monitor.summary.kind import OfMethods
from offpolicy_monitor.summary.method import COUNTS, Spec, method_figures, method_needs, paths_of, shapes
from offpolicy_monitor.summary.records import ALL, SILENT, Figures, Floats, Read, Records, Wanted
from offpolicy_monitor.summary.remembered import remembered
from offpolicy_monitor.summary.scheme import REMEMBERED
from offpolicy_monitor.summary.straight import Code, NotStraightError, texts_of
from offpolicy_monitor.summary.tables import KINDS
from offpolicy_monitor.vocabulary import QUANTILES

NOTHING: Final = Told(Form({}, ()), np.zeros(0))
#: Whole numbers of a gap, which come first.
_COUNTED: Final = ("tokens", "sequences", "clamped_tokens")
#: Quantiles of gaps and their sequences, wherever they stand.
QUANTILE_FIGURES: Final = "quantiles"
#: Numbers of a row by their indices, in order; and the indices of those that are whole.
Chosen = tuple[Iterable[int], Collection[int]]


#: Figures of gaps, and of their sequences, that are formulas of tables `.../{gap}`: by the first part of their path.
_TOKENS: Final = (("gaps", OF_TOKENS), *chain.from_iterable(kind.of_gaps.items() for kind in KINDS))
_SEQUENCES: Final = (("gaps", OF_SEQUENCES), *chain.from_iterable(kind.of_sequences.items() for kind in KINDS))
_PARTS: Final = tuple(dict.fromkeys(part for part, _ in (*_TOKENS, *_SEQUENCES)))
_MADE: Final = [kind.made_of_gaps for kind in KINDS if kind.made_of_gaps is not None]
_OF_METHODS: Final = [kind.of_methods for kind in KINDS if kind.of_methods is not None]
#: The records of gaps, side by side, by the first part of their paths.
OfGaps = Mapping[str, Records]


def records_of(arrays: Arrays, gaps: tuple[str, ...]) -> OfGaps:
    """Those of some gaps, read together."""
    return dict(zip(_PARTS, Records.of_kinds(arrays, _paths(gaps)), strict=True))


@SILENT
def gaps_told(
    arrays: Arrays, gaps: tuple[str, ...], records: OfGaps, shown: Callable[[], Histograms], wanted: Wanted = ALL
) -> Told:
    """The figures of each gap whose log-probs were sent; of one without a token, that there is none.

    `shown` gives their histograms, where quantiles are wanted.
    """
    if not gaps:
        return NOTHING
    sums = records["gaps"]
    tokens, sequences = _of_gaps(arrays, gaps, records, wanted)
    of_quantiles = _quantiles(shown(), sums) if QUANTILE_FIGURES in wanted else []
    kinds = [kind for kind in (tokens, sequences, *of_quantiles) if kind]
    has_tokens = sums["tokens"] > 0

    def form() -> Form:
        shape: dict[str, Any] = {}
        needed = dict[str, Floats]()
        for part, made in (*_TOKENS, *_SEQUENCES):
            needed |= made.needed(records[part], wanted)
        of_gaps, *further = slots_of(kinds, needed)
        of_sequences = further.pop(0) if sequences else [dict[str, Any]() for _ in gaps]
        for record, (gap, is_told) in enumerate(zip(gaps, has_tokens, strict=True)):
            of_d, of_l = ({QUANTILE_FIGURES: of_level[record]} for of_level in further) if further else ({}, {})
            shape[gap] = {**of_gaps[record], **of_d, "sequence": {**of_sequences[record], **of_l}}
            if not is_told:
                shape[gap] = {**dict.fromkeys(_COUNTED, 0), "sequence": {}}
        return Form(shape, range(len(_COUNTED) * len(gaps)))

    key = ("gaps", gaps, wanted, *(found.lacks for found in records.values()), has_tokens.tobytes())
    return Told(remembered(key, (), form), row(kinds))


def _of_gaps(arrays: Arrays, gaps: tuple[str, ...], records: OfGaps, wanted: Wanted) -> tuple[Figures, Figures]:
    """Those over their tokens, counts first, and over their sequences."""
    tokens, sequences = {name: records["gaps"][name] for name in _COUNTED}, dict[str, Floats]()
    for found, formulas in ((tokens, _TOKENS), (sequences, _SEQUENCES)):
        for part, made in formulas:
            found |= made.of(records[part], wanted)
    for made_of in _MADE:
        tokens |= made_of(arrays, gaps, wanted)
    return tokens, sequences


def _quantiles(shown: Histograms, sums: Records) -> list[Figures]:
    """Those of d, and of L."""
    ends = (sums.rows((f"log_ratio_{end}", f"log_geometric_{end}")).ravel() for end in ("min", "max"))
    found = shown.quantiles(QUANTILES, *ends).reshape(2, len(sums), -1)
    return [dict(zip(map(str, QUANTILES), of_level.T, strict=True)) for of_level in found]


@SILENT
def methods_told(arrays: Arrays, specs: Mapping[str, Spec | None], wanted: Wanted = ALL) -> Told:
    """The figures of each method row that was merged with none of other thresholds."""
    known = {name: spec for name, spec in specs.items() if spec is not None}
    if not known:
        return NOTHING
    names, of_rows = tuple(known), tuple(known.values())
    sums = Records.at(arrays, paths_of(names))
    found, further = method_figures(of_rows, sums, wanted), _further(arrays, names, wanted)
    kinds = (found, *(of_kind.figures for of_kind in further))
    tokens = dict(zip(names, sums["tokens"].tolist(), strict=True))
    are_told = [tuple(of_kind.told(tokens)) for of_kind in further]

    def form() -> Form:
        of_methods, *slots = slots_of(kinds, method_needs(of_rows, sums))
        shape = dict(zip(names, shapes(of_rows, of_methods, [*tokens.values()]), strict=True))
        for of_kind, records, told in zip(further, slots, are_told, strict=True):
            for number, (name, is_told) in enumerate(zip(of_kind.names, told, strict=True)):
                if is_told:
                    shape[name].update(of_kind.members(number, records[number]))
        return Form(shape, range(sum(name in COUNTS for name in found) * len(names)))

    has_tokens = (sums["tokens"] > 0).tobytes()
    key = ("methods", names, wanted, sums.lacks, has_tokens, *(of_kind.key for of_kind in further), *are_told)
    return Told(remembered(key, of_rows, form), row(kinds))


def read_for(
    arrays: Arrays, gaps: tuple[str, ...], specs: Mapping[str, Spec | None], wanted: Wanted, *chosen: Chosen
) -> Read:
    """Straight code for what is chosen of the numbers of `gaps_told`, and of `methods_told`, of some gaps and rows.

    It raises NO_NUMBER where one of them has no token; this NOT_STRAIGHT where some of `wanted` is no plain formula.
    """
    known = {name: spec for name, spec in specs.items() if spec is not None}
    names, of_rows = tuple(known), tuple(known.values())
    kinds, code = (*_paths(gaps), paths_of(names)), Code()
    *of_gaps, sums = Records.written(arrays, kinds, code)
    if QUANTILE_FIGURES in wanted:
        raise NotStraightError(QUANTILE_FIGURES)
    tokens, sequences = _of_gaps(arrays, gaps, dict(zip(_PARTS, of_gaps, strict=True)), wanted)
    further = (of_kind.figures for of_kind in _further(arrays, names, wanted))
    of_methods = (method_figures(of_rows, sums, wanted), *further)
    results = list[str]()
    for rows, (indices, whole) in zip(((tokens, sequences), of_methods), chosen, strict=True):
        numbers = texts_of(row(rows))
        results += [f"int({numbers[index]})" if index in whole else numbers[index] for index in indices]
    positive = [*texts_of(of_gaps[0]["tokens"]), *texts_of(sums["tokens"])]
    return Read.of(arrays, kinds, *code.function(results, positive))


def _further(arrays: Arrays, names: tuple[str, ...], wanted: Wanted) -> list[OfMethods]:
    """What kinds of tables tell of rows."""
    found = (of_methods(arrays, names, wanted) for of_methods in _OF_METHODS)
    return [of_kind for of_kind in found if of_kind.figures]


@SILENT
def rows_told(specs: Sequence[Spec], sums: Records) -> list[dict[str, Any]]:
    """The figures of method rows alone, in their order."""
    if not specs:
        return []
    found = method_figures(specs, sums)
    (of_rows,) = slots_of((found,), method_needs(specs, sums))
    rows = shapes(specs, of_rows, found["tokens"].tolist())
    form = Form({str(index): of_row for index, of_row in enumerate(rows)}, range(len(COUNTS) * len(specs)))
    return list(form.filled(row((found,))).values())


@lru_cache(REMEMBERED)
def _paths(gaps: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(f"{part}/{gap}" for gap in gaps) for part in _PARTS)
