"""What decoding takes of this machine's memory, body by body: `python decoding_peaks.py` prints it as JSON.

Each body is decoded in a child of its own, so that none uses memory that another has left. What Python itself counts
would not do: the parser of JSON asks for memory that it never touches.
"""

import contextlib
import gc
import json
import os
import random
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from offpolicy_monitor.wire.limits import Limits

Measured = TypeVar("Measured")
#: Bytes of a body, or about as many.
SIZE = 2_000_000


def keys(value: str) -> str:
    return "{" + ",".join(f'"{number:x}":{value}' for number in range(SIZE // 8)) + "}"


def listed(item: str) -> str:
    return "[" + f"{item}," * (SIZE // (len(item) + 1)) + f"{item}]"


#: A field and what makes its text, a second's work for all of them.
WORST: dict[str, tuple[str, Callable[[], str]]] = {
    "small numbers": ("logprobs", partial(listed, "1")),
    "numbers": ("logprobs", partial(listed, "-9")),
    "fractions": ("logprobs", partial(listed, "0.5")),
    "integers": ("turns", partial(listed, "-9")),
    "mask": ("mask", partial(listed, "1")),
    "empty lists": ("logprobs", partial(listed, "[]")),
    "lists of one": ("logprobs", partial(listed, "[1]")),
    "experts": ("experts", partial(listed, "[[1,2]]")),
    "unknown lists": ("x", partial(listed, "[]")),
    "nested lists": ("x", partial(listed, "[" * 500 + "]" * 500)),
    "objects": ("x", partial(listed, "{}")),
    "nested objects": ("x", partial(listed, '{"":' * 500 + "0" + "}" * 500)),
    "objects of one": ("x", partial(listed, '{"":0}')),
    "keys": ("x", partial(keys, "0")),
    "labels": ("labels", partial(keys, '""')),
    "labels that are no texts": ("labels", partial(keys, "0")),
    "ids": ("sequence_ids", partial(listed, '"ab"')),
    "ids of one character": ("sequence_ids", partial(listed, '"a"')),
    "wide ids": ("sequence_ids", partial(listed, '"\U0001f600a"')),
    "long ids with a wide character": ("sequence_ids", partial(listed, '"\U0001f600' + "a" * 200 + '"')),
    "ids that are no texts": ("sequence_ids", partial(listed, "1")),
    "a text with a wide character": ("rollout", lambda: '"\U0001f600' + "a" * SIZE + '"'),
    "a text": ("rollout", lambda: '"' + "a" * SIZE + '"'),
    "rows": ("methods", partial(listed, "{}")),
    "a row": ("methods", lambda: f"[{keys('0')}]"),
}


def worst(name: str) -> bytes:
    """A body of which one field is as bad as it can be."""
    field, value = WORST[name]
    return f'{{"step":1,"lengths":[1],"{field}":{value()}}}'.encode()


def ordinary() -> bytes:
    """A body of log-probs as a trainer writes them."""
    source = random.Random(1)
    columns = {
        name: [-source.expovariate(1.0) for _ in range(30_000)]
        for name in ("sampling_logprobs", "old_logprobs", "logprobs")
    }
    return json.dumps({"step": 1, "lengths": [300] * 100, **columns}).encode()


#: What is in a frame's header, as a member of it or of its envelope, which is a text in it.
HEADERS = ("nested lists", "keys", "wide ids", "a text with a wide character")


def header(name: str, in_envelope: bool) -> bytes:
    """A frame without arrays, of whose header one value is as bad as it can be."""
    value = f'{{"step":1,"x":{WORST[name][1]()}}}'
    text = json.dumps({"__metadata__": {"batch": value}} if in_envelope else {"x": 0}, ensure_ascii=False)
    encoded = (text if in_envelope else text.replace("0", WORST[name][1]())).encode()
    return struct.pack("<Q", len(encoded)) + encoded


FRAMES = {
    f"{name} in a frame's {place}": partial(header, name, place == "envelope")
    for name in HEADERS
    for place in ("header", "envelope")
}
BODIES = {name: partial(worst, name) for name in WORST} | {"ordinary": ordinary} | FRAMES
#: Bodies that are read with the same code, by media type.
SMALL = {
    "application/json": b'{"step":1,"lengths":[1],"methods":[]}',
    "application/vnd.safetensors": struct.pack("<Q", 7) + b'{"x":0}',
}


def taken(name: str) -> int:
    """The most bytes that decoding this body holds at once, whatever comes of it."""
    from offpolicy_monitor.errors import Refusal
    from offpolicy_monitor.wire.decode import decode_batch, decode_evaluation

    limits, body = limits_with(max_json_lists=1 << 30, max_frame_header_bytes=1 << 30), BODIES[name]()
    decode = decode_evaluation if name in WORST and WORST[name][0] == "methods" else decode_batch
    with contextlib.suppress(Refusal):  # what code takes that runs for the first time
        decode(SMALL[media_type_of(name)], media_type_of(name), limits)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    with contextlib.suppress(Refusal):
        decode(body, media_type_of(name), limits)
    return resident("VmHWM") - before


def limits_with(**settings: Any) -> "Limits":
    """Those that a service has with such settings; what else a service needs is not imported."""
    from offpolicy_monitor.settings import Settings
    from offpolicy_monitor.wire.limits import Limits

    known = Settings(_env_file=None, **settings)
    return Limits(**{field.name: getattr(known, field.name) for field in fields(Limits)})


def media_type_of(name: str) -> str:
    """What a body is."""
    return "application/vnd.safetensors" if name in FRAMES else "application/json"


def resident(row: str) -> int:
    """Bytes of a row of /proc/self/status."""
    found = re.search(rf"{row}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def in_a_child(measure: Callable[[], Measured]) -> Measured:
    """What it gives in a process that ends with it, by way of JSON.

    It looks for garbage in what is new alone: of what was there before, each page that it looks at is copied.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        gc.freeze()
        os.write(writer, json.dumps(measure()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found: Measured = json.load(pipe)
    os.wait()
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    resident("VmRSS")
    import offpolicy_monitor.settings
    import offpolicy_monitor.wire.decode  # noqa: F401  # once, not in each child

    # Made before any child, whose memory is then taken by decoding alone.
    WORST.update({name: (field, partial(str, value())) for name, (field, value) in WORST.items()})
    peaks = {name: in_a_child(partial(taken, name)) for name in BODIES}
    # It is held to a least as well, and what the system takes back meanwhile is missing from one look.
    peaks["ordinary"] = max(peaks["ordinary"], *(in_a_child(partial(taken, "ordinary")) for _ in range(2)))
    json.dump(peaks, sys.stdout)
