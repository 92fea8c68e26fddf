"""Bodies for the tests of the wire: the service's default limits, and both media types from plain values."""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import orjson
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.wire import frame
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import LaterHalf, Message, Reduced

JSON = "application/json"
SAFETENSORS = frame.MEDIA_TYPE
DEFAULTS = Settings(_env_file=None)
LIMITS = Limits(**{field.name: getattr(DEFAULTS, field.name) for field in fields(Limits)})


def json_body(**members: object) -> bytes:
    """A JSON body: envelope and arrays in one object."""
    return orjson.dumps(members, option=orjson.OPT_SERIALIZE_NUMPY)


def frame_body(envelope: Mapping[str, object], bfloat16: tuple[str, ...] = (), /, **arrays: np.ndarray) -> bytes:
    """A safetensors body."""
    return b"".join(bytes(part) for part in frame.encode(envelope, arrays, bfloat16))


def decode_json(**members: object) -> Message:
    """The message of a JSON body that is whole."""
    return whole(decode_batch(json_body(**members), JSON, LIMITS))


def decode_frame(envelope: Mapping[str, object], bfloat16: tuple[str, ...] = (), /, **arrays: np.ndarray) -> Message:
    """The message of a safetensors body that is whole."""
    return whole(decode_batch(frame_body(envelope, bfloat16, **arrays), SAFETENSORS, LIMITS))


def whole(decoded: Message | LaterHalf | Reduced) -> Message:
    """The message, where it is not the later half of a two-phase post."""
    assert isinstance(decoded, Message)
    return decoded


def f32(*values: float) -> np.ndarray:
    """A float32 array of these values."""
    return np.array(values, np.float32)


def ints(*values: int) -> np.ndarray:
    """An int64 array of these values."""
    return np.array(values, np.int64)
