"""Shapes: whether the arrays of one batch agree, told from their shapes before anything is copied.

Refuses early what the service would refuse late. Values are not looked at, but for lengths that are in this machine's
memory. Knows the contract's rows and the three layouts: packed [T] with lengths, padded [S, L], rows.
"""

from collections.abc import Mapping

import numpy as np

from offpolicy_monitor.client.mistakes import Mistake
from offpolicy_monitor.client.values import Value
from offpolicy_monitor.vocabulary import CURRENT, LOGPROBS
from offpolicy_monitor.wire.arrays import ARRAYS, NUMPY_KINDS, ArrayRow


def check(values: Mapping[str, Value], rollout: bool) -> None:
    """Raise Mistake unless the service would take these arrays; with `rollout` either half of a shard is enough."""
    unknown = sorted(values.keys() - ARRAYS.keys())
    if unknown:
        raise Mistake("unknown-array", f"unknown: {', '.join(unknown)}; arrays are {', '.join(ARRAYS)}")
    given = [name for name in LOGPROBS if name in values]
    if len(given) < 2 and not (rollout and given == [CURRENT]):
        raise Mistake("logprobs", f"at least two of {', '.join(LOGPROBS)} are needed, given: {given}")
    for name, value in values.items():
        _check_alone(name, ARRAYS[name], value)
    _check_together(values, given[0], later=given == [CURRENT])


def lengths_of_rows(values: Mapping[str, Value]) -> np.ndarray | None:
    """`lengths` [S] int64 where rows of different lengths were given, else None. Raises Mistake where they differ."""
    found = {name: value.widths for name, value in values.items() if value.widths is not None}
    if not found:
        return None
    if len(set(found.values())) > 1:
        raise Mistake("rows", f"rows have other lengths in one array than in another: {', '.join(found)}")
    return np.array(next(iter(found.values())), np.int64)


def _check_alone(name: str, row: ArrayRow, value: Value) -> None:
    if value.kind not in NUMPY_KINDS[row.kind]:
        raise Mistake("dtype", f"{name}: numbers of kind {value.kind!r} are not what it holds")
    rank = len(value.shape) - row.inner_rank
    if rank != 1 and not (rank == 2 and row.per != "sequence"):
        raise Mistake("rank", f"{name}: the shape {list(value.shape)} is not one that it may have")


def _check_together(values: Mapping[str, Value], named: str, later: bool) -> None:
    """Every array against the first log-prob array; the `later` half of a rollout may lack lengths."""
    model = values[named]
    sequences = _sequences(values, model, later)
    for name, value in values.items():
        row = ARRAYS[name]
        entries = value.shape[: len(value.shape) - row.inner_rank]
        if row.per != "token" and entries == (sequences,):
            continue
        if row.per == "sequence" and sequences is not None:
            raise Mistake("sequences", f"{name}: {entries[0]} entries for {sequences} sequences")
        if row.per == "sequence" or (row.per == "either" and sequences is None and len(entries) == 1):
            continue
        if entries != model.shape or value.widths != model.widths:
            raise Mistake("shape", f"{name}: its shape {list(value.shape)} does not fit {named} {list(model.shape)}")


def _sequences(values: Mapping[str, Value], model: Value, later: bool) -> int | None:
    """S; None where only the first half of the rollout tells."""
    lengths = values.get("lengths")
    if lengths is not None and not lengths.on_device:
        _check_lengths(np.asarray(lengths.parts[0]), model)
    if len(model.shape) == 2:
        return model.shape[0]
    if model.widths is not None:
        return len(model.widths)
    if lengths is not None:
        return lengths.shape[0]
    if model.shape[0] and not later:
        raise Mistake("lengths", "required where the arrays are packed")
    return None if later else 0


def _check_lengths(lengths: np.ndarray, model: Value) -> None:
    """The lengths of this machine's memory against the positions."""
    if len(model.shape) == 2:
        wrong = len(lengths) != model.shape[0] or bool((lengths > model.shape[1]).any())
    elif model.widths is not None:
        wrong = not np.array_equal(lengths, model.widths)
    else:
        wrong = int(lengths.sum()) != model.shape[0]
    if wrong or (lengths < 0).any():
        total = int(lengths.sum())
        raise Mistake("lengths", f"{len(lengths)} lengths that sum to {total} do not fit the shape {list(model.shape)}")
