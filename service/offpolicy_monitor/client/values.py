"""Values: whatever a trainer holds (numpy, torch, JAX, lists), as arrays of the wire, copied exactly once.

Reads shapes and dtypes without touching the data, so that a batch can be refused or dropped before it costs a copy.
torch is never imported: who gives a tensor has imported it. Knows one argument at a time.

Shapes: [T] packed, [S, L] padded, or S rows of their own lengths, which become packed with `widths` [S].
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.client import device
from offpolicy_monitor.client.mistakes import Mistake
from offpolicy_monitor.wire.arrays import ARRAYS

Array: TypeAlias = NDArray[Any]
BFLOAT16 = "bfloat16"
WORD = np.dtype(np.uint16)
#: What Python's own numbers become, as the service reads those of JSON; numpy's choice for other kinds.
LISTED: Mapping[str, str] = {"log-prob": "f4", "float": "f4", "int": "i8", "experts": "u2"}


@dataclass(frozen=True)
class Value:
    """One argument, not copied yet.

    shape   as it will be sent; kind: numpy's letter for its dtype (f, i, u, b), f for bfloat16
    nbytes  of the copy
    parts   the numpy views, or the tensors of a device, that the copy is made of, one after the other
    widths  entries of each row where rows of different lengths were given, else None
    """

    shape: tuple[int, ...]
    kind: str
    nbytes: int
    bfloat16: bool
    parts: Sequence[Any]
    widths: tuple[int, ...] | None = None
    on_device: bool = False

    def copied(self) -> Array:
        """The values in memory of their own, contiguous; bfloat16 as uint16 bit patterns. Not for a device's."""
        if self.widths is None and len(self.parts) == 1:
            return np.array(self.parts[0], order="C", copy=True).reshape(self.shape)
        return np.concatenate(self.parts).reshape(self.shape)


def read(name: str, value: object) -> Value:
    """What an argument holds. Raises Mistake for what is no array of numbers."""
    rows = _rows(value)
    if rows is None:
        return _whole(name, value)
    return _jagged(name, [_whole(name, row) for row in rows])


def host_view(name: str, value: Any) -> tuple[Array, bool]:
    """A numpy view of one array in this machine's memory, and whether its entries are bfloat16 bit patterns."""
    if is_tensor(value):
        value = value.detach()
        if str(value.dtype) == f"torch.{BFLOAT16}":
            return value.view(sys.modules["torch"].int16).numpy().view(WORD), True
        return value.resolve_neg().numpy(), False
    array = _as_array(name, value)
    if array.dtype.kind == "V" and array.dtype.name == BFLOAT16:  # as JAX has it; the name alone is slow to ask for
        return array.view(WORD), True
    return array, False


def is_tensor(value: object) -> bool:
    """Whether this is a torch tensor, told without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _rows(value: Any) -> Sequence[object] | None:
    """The rows of a list or tuple of rows, or of a nested tensor; None for one array."""
    if is_tensor(value):
        return list(value.unbind()) if value.is_nested else None
    if not isinstance(value, (list, tuple)):
        return None
    return value if any(not np.isscalar(row) and np.ndim(_shaped(row)) > 0 for row in value[:1]) else None


def _shaped(row: Any) -> Any:
    """The row, or where it is a tensor something of its rank that numpy can tell without copying it."""
    return np.empty((0,) * len(row.shape)) if hasattr(row, "shape") else row


def _whole(name: str, value: Any) -> Value:
    """One array of one shape."""
    if is_tensor(value) and value.device.type != "cpu":
        dtype = str(value.dtype).removeprefix("torch.")
        kind = {"b": "f", "f": "f", "i": "i", "u": "u"}.get(dtype[0], "O") if dtype != "bool" else "b"
        nbytes = value.numel() * value.element_size()
        return Value(tuple(value.shape), kind, nbytes, dtype == BFLOAT16, [value], on_device=True)
    view, bfloat16 = host_view(name, value)
    return Value(view.shape, "f" if bfloat16 else view.dtype.kind, view.nbytes, bfloat16, [view])


def _jagged(name: str, rows: list[Value]) -> Value:
    """Rows as one array: padded where all have one length, else packed."""
    filled = [row for row in rows if row.nbytes] or rows
    first = filled[0]
    if len({(row.shape[1:], str(row.parts[0].dtype), row.on_device) for row in filled}) > 1 or not first.shape:
        raise Mistake("rows", f"{name}: its rows differ in dtype, rank or device")
    widths = tuple(row.shape[0] if row.shape else 0 for row in rows)
    even = len(set(widths)) == 1
    shape = (len(rows), *first.shape) if even else (sum(widths), *first.shape[1:])
    parts = [part for row in filled for part in row.parts]
    nbytes = sum(row.nbytes for row in rows)
    return Value(shape, first.kind, nbytes, first.bfloat16, parts, None if even else widths, first.on_device)


def _as_array(name: str, value: Any) -> Array:
    """A numpy array of anything array-like; Python's own numbers take the dtype that the contract has for them."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise Mistake("not-an-array", f"{name}: {error}") from error
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        return array
    listed = LISTED.get(ARRAYS[name].kind) if name in ARRAYS else None
    return array if listed is None or array.dtype.kind not in "fiu" else array.astype(listed)


def copies(values: Mapping[str, Value]) -> tuple[dict[str, Array], Callable[[], None]]:
    """Copies of all values by name, and what to call before they are read: it returns when they have arrived."""
    away = {name: value for name, value in values.items() if value.on_device}
    here = {name: value.copied() for name, value in values.items() if not value.on_device}
    if not away:
        return here, _nothing
    arrived, wait = device.copies({name: value.parts for name, value in away.items()})
    views = {name: host_view(name, tensor)[0].reshape(away[name].shape) for name, tensor in arrived.items()}
    return here | views, wait


def _nothing() -> None:
    pass
