"""What method rows would keep of sequences whose raw tokens were stored, decided as /v1/evaluate decides it.

Rows look at each sequence by itself, so any sequences may stand in one batch. What was kept cannot decide a row that
cuts over all tokens of a request, a row on whole sequences where some tokens were left out, or one whose gap the
sequence lacks. Knows no store.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import Cut, Drop
from offpolicy_monitor.pipeline.values import Measurer
from offpolicy_monitor.slices import Slices
from offpolicy_monitor.summary.evaluation import Evaluation
from offpolicy_monitor.summary.tables.worst import BESIDE, GAPS, Sequences
from offpolicy_monitor.vocabulary import LOGPROBS

#: By the name of a row: 1 or 0 for each kept position, None where it cannot be told.
Keep = Mapping[str, list[int] | None]
#: Two log-probs make a gap.
FEWEST: Final = 2


def batch_of(found: Sequences) -> RaggedBatch | None:
    """The kept tokens of sequences in their order, none of those without; None where they make no gap."""
    values = _narrow(found.raw.logprobs.astype(np.float64))
    sent = {name: values[:, k].copy() for k, name in enumerate(LOGPROBS) if np.isfinite(values[:, k]).any()}
    if len(sent) < FEWEST:
        return None
    advantages = _advantages(found)
    if any(own is not None for own in advantages):
        # One number for a whole sequence decides as the same number at each of its tokens does.
        sizes = zip(advantages, found.raw.numbers.tolist(), strict=True)
        sent["advantages"] = _narrow(np.concatenate([np.zeros(size) if own is None else own for own, size in sizes]))
    lengths = np.zeros(len(found), np.int64)
    lengths[found.kept[:, 0]] = found.raw.numbers
    return RaggedBatch.from_positions(lengths, sent, {})


def kept(
    measurer: Measurer, sequences: Sequences, rows: Sequence[MethodRow], batch: RaggedBatch | None
) -> Slices[list[Keep]]:
    """What each row keeps of each sequence, of whose tokens `batch` is the batch."""
    found = None if batch is None else (yield from measurer.evaluation(batch, rows, "token"))
    masks = {} if found is None else _masks(found)
    return [
        {row.name: masks[row.name][number] if decides(row) and row.name in masks else None for row in rows}
        for number, decides in enumerate(_deciding(sequences))
    ]


def _masks(found: Evaluation) -> dict[str, list[list[int]]]:
    """By row, for each sequence a list."""
    spans = list(zip(found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True))
    return {
        row["name"]: [detail.keep_tokens[begin:end].tolist() for begin, end in spans]
        for row, detail in zip(found.methods, found.details or (), strict=True)
        if detail.keep_tokens is not None
    }


def _deciding(found: Sequences) -> list[Callable[[MethodRow], bool]]:
    """Of each sequence, which rows its kept tokens decide."""
    gaps = [{gap for gap, is_there in zip(GAPS, there, strict=True) if is_there} for there in found.has_gaps.tolist()]
    whole, advantages = [False] * len(found), [False] * len(found)
    of_kept = zip(found.kept[:, 0].tolist(), found.raw.numbers.tolist(), _advantages(found), strict=True)
    for row, size, own in of_kept:
        whole[row], advantages[row] = size == int(found.whole[row, 2]), own is not None
    return [partial(_decides, *of_sequence) for of_sequence in zip(gaps, whole, advantages, strict=True)]


def _decides(gaps: Container[str], is_whole: bool, has_advantages: bool, row: MethodRow) -> bool:
    """Whether what was kept of a sequence decides a row."""
    if isinstance(row.rule, Cut) or row.gap not in gaps or (row.needs_advantages and not has_advantages):
        return False
    by_token = not isinstance(row.rule, Drop) or row.rule.of_each_token
    return by_token or is_whole


def _advantages(found: Sequences) -> list[Array | None]:
    """Of each kept sequence those of its tokens; None where they were not sent, or not all of them are finite."""
    if not found.beside:
        return [None] * len(found.kept)
    own = found.beside[BESIDE.index("advantages")]
    parts = np.split(own.values.astype(np.float64), np.cumsum(own.sizes)[:-1])
    sizes = zip(parts, found.raw.numbers.tolist(), strict=True)
    return [np.broadcast_to(part, size) if len(part) and np.isfinite(part).all() else None for part, size in sizes]


def _narrow(values: Array) -> Array:
    """As float32, which nearly all are sent as, where that holds each of them."""
    with np.errstate(over="ignore"):
        singles = values.astype(np.float32)
    return singles if np.array_equal(singles, values, equal_nan=True) else values
