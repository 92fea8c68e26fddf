"""The figures of gaps and of method rows, as numbers and the form in which they are answered.

Each is computed for all gaps, or all rows, at once; the form is that of the shard before, unless other gaps, or rows,
have something to tell.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.form import Form, Told, row, slots_of
from offpolicy_monitor.summary.gap import gap_figures
from offpolicy_monitor.summary.histogram import Histograms
from offpolicy_monitor.summary.method import COUNTS, Spec, method_figures, paths_of, shapes
from offpolicy_monitor.summary.records import SILENT, Figures, Records
from offpolicy_monitor.summary.remembered import remembered
from offpolicy_monitor.summary.tables.advantage import GRADIENT_BINS, gap_extras, sequence_extras
from offpolicy_monitor.summary.tables.anchors import anchor_disagreements
from offpolicy_monitor.summary.tables.lengths import length_biases
from offpolicy_monitor.vocabulary import QUANTILES

NOTHING: Final = Told(Form({}, ()), np.zeros(0))
#: Whole numbers of a gap, which come first.
_COUNTED: Final = ("tokens", "sequences", "clamped_tokens")


@SILENT
def gaps_told(arrays: Arrays, gaps: tuple[str, ...], sums: Records, shown: Histograms | None) -> Told:
    """The figures of each gap whose log-probs were sent; of one without a token, that there is none.

    Without `shown` they are without quantiles, which take a third of the time.
    """
    if not gaps:
        return NOTHING
    of_tokens, of_sequences = gap_figures(sums)
    extras, needs = gap_extras(_records(arrays, "advantage", gaps), _gradient(arrays, gaps), of_tokens["k3"])
    further, needed = sequence_extras(_records(arrays, "sequence", gaps))
    tokens = {**{name: sums[name] for name in _COUNTED}, **of_tokens, **extras}
    sequences = {**of_sequences, **further}
    kinds = (tokens, sequences, *(() if shown is None else _quantiles(shown, sums)))
    counted = sums["tokens"].tolist()

    def form() -> Form:
        shape: dict[str, Any] = {}
        of_gaps, of_sequences, *levels = slots_of(kinds, {**needs, **needed})
        for record, (gap, number) in enumerate(zip(gaps, counted, strict=True)):
            of_d, of_l = ({"quantiles": of_level[record]} for of_level in levels) if levels else ({}, {})
            shape[gap] = {**of_gaps[record], **of_d, "sequence": {**of_sequences[record], **of_l}}
            if not number > 0:
                shape[gap] = {**dict.fromkeys(_COUNTED, 0), "sequence": {}}
        return Form(shape, range(len(_COUNTED) * len(gaps)))

    key = ("gaps", gaps, len(kinds), _lacking(needs), _lacking(needed), *(number > 0 for number in counted))
    return Told(remembered(key, (), form), row(kinds))


def _quantiles(shown: Histograms, sums: Records) -> list[Figures]:
    """Those of d, and of L."""
    ends = (sums.rows((f"log_ratio_{end}", f"log_geometric_{end}")).ravel() for end in ("min", "max"))
    found = shown.quantiles(QUANTILES, *ends).reshape(2, len(sums), -1)
    return [dict(zip(map(str, QUANTILES), of_level.T, strict=True)) for of_level in found]


@SILENT
def methods_told(arrays: Arrays, specs: Mapping[str, Spec | None]) -> Told:
    """The figures of each method row that was merged with none of other thresholds."""
    known = {name: spec for name, spec in specs.items() if spec is not None}
    if not known:
        return NOTHING
    names, of_rows = tuple(known), tuple(known.values())
    found = method_figures(of_rows, Records.at(arrays, paths_of(names)))
    tokens = found.figures["tokens"].tolist()
    (anchored, anchors), (biased, biases) = anchor_disagreements(arrays), length_biases(arrays)
    ran = biased.ran(dict(zip(names, tokens, strict=True)))

    def form() -> Form:
        of_methods, of_anchors, of_lengths = slots_of(kinds, found.needs)
        shape = dict(zip(names, shapes(of_rows, of_methods, tokens), strict=True))
        for name, figures in zip(anchored, of_anchors, strict=True):
            shape.get(name, {}).update(figures)
        for (name, _, unit), figures, is_told in zip(biased.rows, of_lengths, ran, strict=True):
            if is_told:
                shape[name]["length_bias"] = {"unit": unit, **figures}
        return Form(shape, range(len(COUNTS) * len(names)))

    kinds = (found.figures, anchors, biases)
    key = ("methods", names, _lacking(found.needs), anchored, biased.rows, *(n > 0 for n in tokens), *ran)
    return Told(remembered(key, of_rows, form), row(kinds))


@SILENT
def rows_told(specs: Sequence[Spec], sums: Records) -> list[dict[str, Any]]:
    """The figures of method rows alone, in their order."""
    if not specs:
        return []
    found = method_figures(specs, sums)
    (of_rows,) = slots_of((found.figures,), found.needs)
    rows = shapes(specs, of_rows, found.figures["tokens"].tolist())
    form = Form({str(index): of_row for index, of_row in enumerate(rows)}, range(len(COUNTS) * len(specs)))
    return list(form.filled(row((found.figures,))).values())


def _lacking(needs: Figures) -> bytes:
    """Which of the records lack what."""
    return np.isnan(tuple(needs.values())).tobytes()


def _records(arrays: Arrays, kind: str, gaps: Sequence[str]) -> Records:
    return Records.at(arrays, [f"{kind}/{gap}" for gap in gaps])


def _gradient(arrays: Arrays, gaps: Sequence[str]) -> Array:
    """[gaps, GRADIENT_BINS] tokens by |A r|; zeros of a gap of which that is not known."""
    found = (arrays.get(f"gradient/{gap}") for gap in gaps)
    return np.stack([np.zeros(GRADIENT_BINS, np.int64) if counts is None else counts for counts in found])
