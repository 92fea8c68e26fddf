"""Reduce: a shard becomes its summary in the trainer, by the same torch code that the service runs.

Arrays come as `Monitor.log` has them: tensors of any device, numpy arrays, lists of rows; packed, padded or rows. The
layouts are settled by the wire's own code, so that a summary equals what the service would have made of the arrays.
torch and everything that needs it is imported when the first shard is reduced; it knows no HTTP.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offpolicy_monitor.batch import Array, Origin, RaggedBatch
from offpolicy_monitor.client.one_thread import one_thread
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.vocabulary import LOGPROBS
from offpolicy_monitor.wire.arrays import ARRAYS, SUMMARY, ArrayRow, invalid
from offpolicy_monitor.wire.assemble import assemble, read_mask
from offpolicy_monitor.wire.layout import Layout
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.sent import SentArray, check_dtype

if TYPE_CHECKING:
    from offpolicy_monitor.measure import Measurer
    from offpolicy_monitor.methods import MethodRow

#: The service's limits are for what strangers send.
_NO_LIMITS: Final = Limits(**{field.name: 1 << 62 for field in fields(Limits)})
#: A measurer serves one thread at a time.
_LOCK: Final = threading.Lock()


def reduced(
    envelope: Mapping[str, Any],
    arrays: Mapping[str, Any],
    methods: Sequence[Mapping[str, Any]] | None = None,
    bfloat16: Collection[str] = (),
    device: str | None = None,
) -> dict[str, Array]:
    """`{"summary": uint8 [N]}`: the stored summary of a shard, to be posted in place of its arrays.

    `methods` are the rows of the run as the service answers them (None: the default ones); of the envelope
    `policy_version`, `shard`, `labels` and `sequence_ids` count. Arrays named in `bfloat16` hold bit patterns. It is
    computed on `device`, which is that of the log-probs unless it is named: a GPU, or the CPU.

    Raises ConfigurationError without torch or for rows that this release does not know, Refusal for arrays that do not
    fit together, ValueError where a sum is not finite.
    """
    measurer, rows = _measurer(device or device_of(arrays)), _rows(methods)
    from offpolicy_monitor.summary.stored import to_bytes

    batch = ragged(arrays, envelope.get("sequence_ids"), bfloat16)
    origin = Origin(envelope.get("policy_version"), envelope.get("shard", 0), dict(envelope.get("labels") or {}))
    with _LOCK, one_thread(_torch()):
        summary = measurer.measure(batch, rows, origin)
    return {SUMMARY: np.frombuffer(to_bytes(summary), np.uint8)}


def ragged(
    arrays: Mapping[str, Any], sequence_ids: Sequence[str] | None = None, bfloat16: Collection[str] = ()
) -> RaggedBatch:
    """The arrays of one shard as the service would read them; Refusal names the array that does not fit."""
    sent = {name: _sent(name, value, name in bfloat16) for name, value in arrays.items() if value is not None}
    if len(sent.keys() & set(LOGPROBS)) < 2:
        raise invalid("logprobs", f"at least two of {', '.join(LOGPROBS)} are needed")
    layout = Layout.of(sent, _NO_LIMITS)
    return assemble(sent, layout, read_mask(sent, layout), sequence_ids)


def _sent(name: str, value: Any, patterns: bool) -> SentArray:
    """One array, flat, with the widths of its rows where it came in rows."""
    if name not in ARRAYS:
        raise invalid(name, "unknown array")
    array, dtype, widths = _flat(ARRAYS[name], value)
    if array.ndim - ARRAYS[name].inner_rank != 1:
        raise invalid(name, f"the shape {list(array.shape)} is not one that this array may have")
    dtype = "bfloat16" if patterns else dtype
    check_dtype(name, dtype)
    return SentArray(name, dtype, np.ascontiguousarray(array), widths)


def _flat(row: ArrayRow, value: Any) -> tuple[Array, str, Array | None]:
    """The entries one after the other, the dtype's name, and the widths of rows, None where there are none."""
    if isinstance(value, (list, tuple)) and value and _rank(value[0]) > row.inner_rank:
        rows = [_host(part) for part in value]
        widths = np.array([len(array) for array, _ in rows], np.int64)
        return np.concatenate([array for array, _ in rows]), rows[0][1], widths
    array, dtype = _host(value)
    if array.ndim - row.inner_rank != 2:
        return array, dtype, None
    sequences, width = array.shape[:2]
    return array.reshape(sequences * width, *array.shape[2:]), dtype, np.full(sequences, width, np.int64)


def _rank(value: Any) -> int:
    return len(value.shape) if hasattr(value, "shape") else np.ndim(value)


def _host(value: Any) -> tuple[Array, str]:
    """A tensor, an array or numbers in this machine's memory, with the dtype's name; bfloat16 as bit patterns."""
    if not hasattr(value, "detach"):
        array = np.asarray(value)
        return array, array.dtype.name
    tensor = value.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        return tensor.contiguous().view(_torch().int16).numpy().view(np.uint16), "bfloat16"
    array = tensor.numpy()
    return array, array.dtype.name


def device_of(arrays: Mapping[str, Any]) -> str:
    """Where to compute: the GPU of the first tensor that is on one, else the CPU."""
    for value in arrays.values():
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        if getattr(first, "is_cuda", False):
            return str(first.device)
    return "cpu"


def _rows(methods: Sequence[Mapping[str, Any]] | None) -> "Sequence[MethodRow]":
    from offpolicy_monitor.methods import PRESETS, restored

    try:
        return PRESETS if methods is None else restored(methods)
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"the service runs method rows that this release does not know: {error}") from error


@cache
def _measurer(device: str) -> "Measurer":
    """One measurer per device."""
    _torch()
    from offpolicy_monitor.measure import Measurer

    return Measurer(device, threads=None)


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ConfigurationError("reduce=True needs torch: pip install 'offpolicy-monitor[server]'") from error
    return torch
