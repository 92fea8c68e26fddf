"""A safetensors body: its tensors as sent arrays, without copying them.

Knows the names of the format's dtypes and how a rank tells packed [T] from padded [S, L].
"""

from collections.abc import Mapping

import numpy as np

from offpolicy_monitor.batch import Array
from offpolicy_monitor.errors import FieldError, FrameError, Refusal
from offpolicy_monitor.wire import frame
from offpolicy_monitor.wire.arrays import ARRAYS, SUMMARY, all_invalid, invalid
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.sent import SentArray, check_dtype, check_inner, check_rows

DTYPE_NAMES: Mapping[str, str] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip


def parse_frame(body: memoryview, limits: Limits) -> tuple[dict[str, object], dict[str, SentArray]]:
    """The envelope's fields and the arrays. Raises Refusal 400, 413 (header), 422 (unknown or misshapen arrays)."""
    decoded = _decode(body, limits)
    if SUMMARY in decoded.tensors:
        return decoded.envelope, {SUMMARY: _summary(decoded.tensors)}
    unknown = [FieldError(name, "unknown array") for name in decoded.tensors if name not in ARRAYS]
    if unknown:
        raise all_invalid(unknown)
    return decoded.envelope, {name: _sent(name, tensor, limits) for name, tensor in decoded.tensors.items()}


def _summary(tensors: Mapping[str, frame.Tensor]) -> SentArray:
    """The bytes of a summary, which stands alone."""
    beside = [FieldError(name, "does not go with a summary") for name in tensors if name != SUMMARY]
    if beside:
        raise all_invalid(beside)
    tensor = tensors[SUMMARY]
    if tensor.dtype != "U8" or tensor.array.ndim != 1:
        raise invalid(SUMMARY, "must be uint8 [N], the stored form of a summary")
    return SentArray(SUMMARY, "uint8", tensor.array)


def _decode(body: memoryview, limits: Limits) -> frame.Frame:
    try:
        return frame.decode(body, limits.max_frame_header_bytes, limits.max_tensors)
    except frame.FrameLimitError as error:
        status, limit = (413, "max_frame_header_bytes") if error.what == "header" else (422, "max_tensors")
        raise limits.refusal(status, limit, error.what, error.got) from error
    except FrameError as error:
        raise Refusal(400, "malformed-body", f"the body is not valid safetensors: {error}") from error


def _sent(name: str, tensor: frame.Tensor, limits: Limits) -> SentArray:
    row, (dtype, array) = ARRAYS[name], tensor
    dtype = DTYPE_NAMES.get(dtype, dtype)
    check_dtype(name, dtype)
    rank = array.ndim - row.inner_rank
    inner = array.shape[rank:]
    if rank == 1:
        limits.check("max_tokens", name, len(array))
        check_inner(name, len(array), inner)
        return SentArray(name, dtype, array)
    if rank == 2 and row.per != "sequence":
        check_rows(name, array.shape[0], array.shape[1], array.shape[0] * array.shape[1], limits)
        check_inner(name, array.shape[0] * array.shape[1], inner)
        return _padded(name, dtype, array, inner)
    raise invalid(name, f"the shape {list(array.shape)} is not one that this array may have")


def _padded(name: str, dtype: str, array: Array, inner: tuple[int, ...]) -> SentArray:
    sequences, width = array.shape[:2]
    return SentArray(name, dtype, array.reshape(sequences * width, *inner), np.full(sequences, width, np.int64))
