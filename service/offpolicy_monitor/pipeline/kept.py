"""What method rows would keep of sequences whose raw tokens were stored, decided as /v1/evaluate decides it.

Rows look at each sequence by itself, so any sequences may stand in one batch. What was kept cannot decide a row that
cuts over all tokens of a request, a row on whole sequences where some tokens were left out, or one whose gap the
sequence lacks. Knows no store.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import Cut, Drop
from offpolicy_monitor.pipeline.values import Measurer
from offpolicy_monitor.slices import Slices
from offpolicy_monitor.summary.evaluation import Evaluation
from offpolicy_monitor.summary.tables.worst import WorstSequence
from offpolicy_monitor.vocabulary import LOGPROBS

#: By the name of a row: 1 or 0 for each kept position, None where it cannot be told.
Keep = Mapping[str, list[int] | None]
#: Two log-probs make a gap.
FEWEST: Final = 2


def batch_of(sequences: Sequence[WorstSequence]) -> RaggedBatch | None:
    """The kept tokens of sequences in their order, none of those without; None where they make no gap."""
    lengths = np.array([len(_tokens(sequence)) for sequence in sequences], np.int64)
    logprobs = [position.logprobs for sequence in sequences for position in _tokens(sequence)]
    values = _narrow(np.array(logprobs, np.float64).reshape(-1, len(LOGPROBS)))
    sent = {name: values[:, k].copy() for k, name in enumerate(LOGPROBS) if np.isfinite(values[:, k]).any()}
    if len(sent) < FEWEST:
        return None
    if any(_advantages(sequence) for sequence in sequences):
        # One number for a whole sequence decides as the same number at each of its tokens does.
        own = [_advantages(s) or [0.0] * size for s, size in zip(sequences, lengths.tolist(), strict=True)]
        sent["advantages"] = _narrow(np.concatenate([np.array(values, np.float64) for values in own]))
    return RaggedBatch.from_positions(lengths, sent, {})


def kept(
    measurer: Measurer, sequences: Sequence[WorstSequence], rows: Sequence[MethodRow], batch: RaggedBatch | None
) -> Slices[list[Keep]]:
    """What each row keeps of each sequence, of whose tokens `batch` is the batch."""
    found = None if batch is None else (yield from measurer.evaluation(batch, rows, "token"))
    masks = {} if found is None else _masks(found)
    return [
        {row.name: masks[row.name][number] if _is_told(row, sequence) and row.name in masks else None for row in rows}
        for number, sequence in enumerate(sequences)
    ]


def _masks(found: Evaluation) -> dict[str, list[list[int]]]:
    """By row, for each sequence a list."""
    spans = list(zip(found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True))
    return {
        row["name"]: [detail.keep_tokens[begin:end].tolist() for begin, end in spans]
        for row, detail in zip(found.methods, found.details or (), strict=True)
        if detail.keep_tokens is not None
    }


def _is_told(row: MethodRow, sequence: WorstSequence) -> bool:
    """Whether what was kept of a sequence decides a row."""
    if isinstance(row.rule, Cut) or row.gap not in sequence.gaps:
        return False
    if row.needs_advantages and not _advantages(sequence):
        return False
    by_token = not isinstance(row.rule, Drop) or row.rule.of_each_token
    return by_token or len(_tokens(sequence)) == sequence.tokens


def _tokens(sequence: WorstSequence) -> Sequence[Any]:
    return () if sequence.columns is None else sequence.columns.tokens


def _advantages(sequence: WorstSequence) -> list[float]:
    """Of each kept token; nothing where they were not sent."""
    tokens = _tokens(sequence)
    found = () if sequence.columns is None else sequence.columns.beside.get("advantages", ())
    values = found if isinstance(found, tuple) else (found,) * len(tokens)
    known = [value for value in values if value is not None]
    return known if len(known) == len(tokens) else []


def _narrow(values: Array) -> Array:
    """As float32, which nearly all are sent as, where that holds each of them."""
    with np.errstate(over="ignore"):
        singles = values.astype(np.float32)
    return singles if np.array_equal(singles, values, equal_nan=True) else values
