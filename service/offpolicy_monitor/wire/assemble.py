"""Assemble: sent arrays and their layout become a RaggedBatch.

Knows which column takes which dtype and which values are refused once the mask has said what counts. What lies beyond a
length or under a zero of the mask may be anything: it is gone before values are looked at.

Shapes: S sequences; P positions within the lengths; T tokens, the positions under the mask.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.vocabulary import LOGPROBS
from offpolicy_monitor.wire.arrays import ARRAYS, ArrayRow, invalid
from offpolicy_monitor.wire.layout import Layout
from offpolicy_monitor.wire.sent import SentArray
from offpolicy_monitor.wire.values import booleans, floats, integers


def assemble(
    arrays: Mapping[str, SentArray], layout: Layout, mask: Array | None, sequence_ids: Sequence[str] | None = None
) -> RaggedBatch:
    """The batch of these arrays under a mask [P] bool (None: all ones).

    Log-probs, and with them all float columns, are float64 if any log-prob came as float64, else float32.
    Raises Refusal 422 for arrays that do not agree, a non-finite advantage of a token, an integer out of range.
    """
    dtypes = {name: arrays[name].dtype for name in LOGPROBS if name in arrays}
    per_token, per_sequence = _columns(arrays, layout, float_dtype(dtypes))
    ids = None if sequence_ids is None else tuple(sequence_ids)
    rest: dict[str, Any] = {"sequence_ids": ids, "dtypes": dtypes}
    batch = _settled(RaggedBatch.from_positions(layout.lengths, per_token, per_sequence, mask, **rest))
    check(batch)
    return batch


def float_dtype(dtypes: Mapping[str, str]) -> np.dtype[np.floating]:
    """The one dtype of all float columns, from the wire dtypes of the log-probs."""
    return np.dtype(np.float64 if "float64" in dtypes.values() else np.float32)


def read_mask(arrays: Mapping[str, SentArray], layout: Layout) -> Array | None:
    """`mask` as [P] bool, or None where absent. Raises Refusal 422 for any other value than 0 and 1."""
    if "mask" not in arrays:
        return None
    sent = arrays["mask"]
    layout.is_per_sequence(sent)
    return booleans(sent.name, sent.dtype, layout.cut(sent.values))


def check(batch: RaggedBatch) -> None:
    """Refuse columns that do not fit together or hold values that no column may hold."""
    if batch.sequence_ids is not None and len(batch.sequence_ids) != batch.sequences:
        raise invalid("sequence_ids", f"has {len(batch.sequence_ids)} entries for {batch.sequences} sequences")
    inner: tuple[int, ...] = ()
    for name, values in batch.columns.items():
        _check_range(ARRAYS[name], values, batch)
        if ARRAYS[name].inner_rank and len(values):
            inner = inner or values.shape[1:]
            if values.shape[1:] != inner:
                raise invalid(name, f"[layers, k] is {list(values.shape[1:])}, but another has {list(inner)}")


def _columns(
    arrays: Mapping[str, SentArray], layout: Layout, dtype: np.dtype[np.floating]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The columns per position [P, ...] and those per sequence [S], in their dtypes."""
    per_position: dict[str, Array] = {}
    per_sequence: dict[str, Array] = {}
    for name, sent in arrays.items():
        if name in ("lengths", "mask"):
            continue
        if layout.is_per_sequence(sent):
            per_sequence[name] = _typed(sent, dtype)
        else:
            per_position[name] = layout.cut(_typed(sent, dtype))
    return per_position, per_sequence


def _typed(sent: SentArray, dtype: np.dtype[np.floating]) -> Array:
    if sent.row.kind == "experts":
        return sent.values
    return integers(sent) if sent.row.kind == "int" else floats(sent, dtype)


def _settled(batch: RaggedBatch) -> RaggedBatch:
    """Give columns that may be per token or per sequence their one form.

    Neutral for a sequence without a token, whose value stands for nothing; per sequence where none has two tokens.
    """
    either = [(name, values) for name, values in batch.columns.items() if ARRAYS[name].per == "either"]
    if not either:
        return batch
    is_filled = batch.offsets[:-1] < batch.offsets[1:]
    filled = np.count_nonzero(is_filled)
    settled: dict[str, Array] = {}
    for name, values in either:
        per_token = name in batch.per_token
        # No sequence has two tokens where as many have any as there are tokens.
        if filled == batch.tokens if per_token else filled < batch.sequences:
            settled[name] = np.full(batch.sequences, ARRAYS[name].neutral, values.dtype)
            settled[name][is_filled] = values if per_token else values[is_filled]
    if not settled:
        return batch
    return replace(batch, columns={**batch.columns, **settled}, per_token=batch.per_token - settled.keys())


def _check_range(row: ArrayRow, values: Array, batch: RaggedBatch) -> None:
    if row.finite and np.count_nonzero(np.isfinite(values)) < values.size:
        raise _refusal(row, ~np.isfinite(values), f"is not finite as {values.dtype}", batch)
    if row.least is not None and len(values) and np.minimum.reduce(values) < row.least:
        raise _refusal(row, values < row.least, f"is less than {row.least}", batch)
    if row.most is not None and _largest(values.dtype) > row.most:
        beyond = np.isfinite(values) & (np.abs(values) > row.most)
        if beyond.any():
            raise _refusal(row, beyond, f"is beyond {row.most:g}", batch)


@cache
def _largest(dtype: np.dtype[Any]) -> float:
    """The most that a dtype can hold, which for float32 is less than most arrays may hold."""
    return float((np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)).max)


def _refusal(row: ArrayRow, wrong: Array, message: str, batch: RaggedBatch) -> Refusal:
    """The 422 that names the first entry that is wrong: its sequence, and its position as sent."""
    index = int(np.argmax(wrong))
    where = f"sequence {index}"
    if row.name in batch.per_token:
        sequence = int(np.searchsorted(batch.offsets, index, side="right")) - 1
        position = index if batch.positions is None else int(batch.positions[index])
        where = f"sequence {sequence}, position {position - int(batch.lengths[:sequence].sum())}"
    return invalid(row.name, f"the entry of {where} {message}")
