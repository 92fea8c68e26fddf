"""Posted summaries of which one part is as bad as it can be, and what reading them takes of this machine's memory.

Most are refused, but only once they are parsed. The arrays of version 2 are named in JSON, those of later versions are
columns behind two JSON headers. `python -m tests.pipeline.worst_summaries` is given a good one as its input: to make it
takes torch, which to read it does not. It prints as JSON, by name, the bytes and the seconds that each takes at each of
SIZES, in a child of its own that has read the good one before.
"""

import contextlib
import json
import struct
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from offpolicy_monitor.client.reduce import reduced
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.rows import NAMES
from offpolicy_monitor.summary.stored import packed_tree, version_3
from offpolicy_monitor.vocabulary import GAPS
from offpolicy_monitor.wire import frame
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.summaries import MOST_NODES

from tests.fixtures.forged import compressed
from tests.fixtures.reduced import arrays_of, envelope_of, joined
from tests.pipeline.decoding_peaks import in_a_child, limits_with, resident

#: Decompressed bytes.
SIZE: Final = 1 << 20
#: Decompressed bytes that are measured.
SIZES: Final = (1 << 16, 1 << 18, SIZE)
#: Lists and objects that are parsed, beside those of a header itself.
NODES: Final = MOST_NODES - 100
#: The most tables, and the most rows of methods, that one may have.
TABLES, ROWS = 4096, 100
GOOD: Final[bytes] = (
    sys.stdin.buffer.read() if __name__ == "__main__" else reduced(envelope_of(0, 1), arrays_of(0))["summary"].tobytes()
)
ENVELOPE: Final = envelope_of(0, 1)
COLUMN: Final = '["|u1",0]'
#: Columns of an empty buffer: four of whole numbers, one of fractions.
EMPTY: Final[Sequence[tuple[str, int]]] = (*[("|u1", 0)] * 4, ("<f4", 0))


def posted(stored: bytes) -> bytes:
    """A body with this summary."""
    return joined(frame.encode(ENVELOPE, {"summary": np.frombuffer(stored, np.uint8)}))


def headed(size: int = SIZE, rest: bytes = b"", **fields: Any) -> bytes:
    """A summary of the newest version with such headers, cut where it would be too large; a text is JSON as it is."""
    shape = {
        "keys": [],
        "specs": {},
        "absent": [],
        **{k: v for k, v in fields.items() if k in ("keys", "specs", "absent")},
    }
    own = {"ids": None, "columns": EMPTY, **{k: v for k, v in fields.items() if k in ("ids", "columns")}}
    texts = [
        "{" + ",".join(f'"{name}":{v if isinstance(v, str) else json.dumps(v)}' for name, v in header.items()) + "}"
        for header in (shape, own)
    ]
    return posted(compressed([text.encode() for text in texts], rest, LAYOUT.version))


def many(item: Callable[[int], str], size: int, least: int) -> str:
    """Items with commas between them, each of at least so many bytes: about `size` in all."""
    return ",".join(map(item, range(size // (least + 1))))


def keys_listed(size: int) -> str:
    return "[" + many(lambda n: f'"{n:x}"', size - 300, 7) + "]"


def wide_keys(size: int) -> str:
    return "[" + many(lambda n: f'"\U0001f600{n:x}"', size - 300, 11) + "]"


def keyed(value: str, size: int) -> str:
    return "{" + many(lambda n: f'"{n:x}":{value}', size - 300, 8 + len(value)) + "}"


def many_columns(size: int) -> str:
    return f"[{many(lambda n: COLUMN, min(size, NODES * len(COLUMN)), len(COLUMN))}]"


def nested(size: int) -> str:
    """Lists in lists, as many as are parsed."""
    one = "[" * 500 + "]" * 500
    return '{"a":[' + ",".join([one] * min(NODES // 500, size // 1001)) + "]}"


OF_ROWS: Final = (
    *(f"masked/{{}}/{gap}/{part}" for gap in GAPS for part in ("tokens", "sequences")),
    *(f"methods/{{}}{part}" for part in ("", "#sides", "#mass", "#weights")),
    "anchor/{}",
)


def tables_of_rows(size: int) -> bytes:
    """As many tables as there may be, all of rows."""
    names = [f"{n:x}" for n in range(ROWS)]
    keys = ["batch", *(part.format(name) for name in names for part in OF_ROWS)]
    return headed(keys=keys[: size // 40], specs={name: {} for name in names})


def tables_that_there_are(size: int) -> bytes:
    """Those whose names are constants, and of routing the one shape that there may be."""
    shape = {"{layers}": max(NAMES["{layers}"], key=int), "{k}": min(NAMES["{k}"])}
    keys, routing = list[str](), list[str]()
    for table in LAYOUT.tables:
        parts = table.path.split("/")
        named = [[shape[part]] if part in shape else sorted(NAMES.get(part, ())) for part in parts]
        choices = [names if part.startswith("{") else [part] for part, names in zip(parts, named, strict=True)]
        shaped = shape.keys() & parts
        for path in product(*choices):
            (routing if shaped else keys).append("/".join(path) + (f"#{table.part}" if table.part else ""))
    rest = [key for key in sorted(set(keys)) if not key.startswith("breakdown/lag")]
    chosen = [*rest, *routing][: min(TABLES, size // 32)]
    return headed(keys=chosen)


def full_columns(name: str, size: int) -> bytes:
    """Numbers for a buffer, as many as there is room for: whole ones, or fractions."""
    found = version_3.content(GOOD[1:])
    shape, _ = version_3.headers_of(found)
    count = (size - len(shape) - 500) // int(name[2])
    own = json.dumps({"ids": None, "columns": [(name, count), *EMPTY[1:]]}).encode()
    return posted(compressed([shape, own], b"\1" * (count * int(name[2])), GOOD[0]))


def full_worst(size: int) -> bytes:
    """Numbers for the worst sequences."""
    found = version_3.content(GOOD[1:])
    shape, own = version_3.headers_of(found)
    header, ahead = json.loads(own), found[8 + len(shape) + len(own) :]
    left = size - len(found) - 500
    header["columns"] = [*header["columns"][:-1], ("|u1", header["columns"][-1][1] + left)]
    return posted(compressed([shape, json.dumps(header).encode()], ahead + b"\1" * left, GOOD[0]))


def of_version_2(outline: Any, names: Any = (), texts: Any = None, **streams: bytes) -> bytes:
    """A summary of version 2; a text is JSON as it is."""
    parts = (v if isinstance(v, str) else json.dumps(v) for v in (list(names), outline, texts or {"specs": {}}))
    empty = {kind: b"" if kind in "fd" else struct.pack("<I", 0) for kind in packed_tree.KINDS}
    packed = [zlib.compress(part) for part in (f"[{','.join(parts)}]".encode(), *(empty | streams).values())]
    return posted(bytes([2]) + packed_tree._LENGTHS.pack(*map(len, packed)) + b"".join(packed))


def tree(**parts: Any) -> str:
    """An outline of version 2."""
    whole = {"batch": [0, ""], "gaps": {}, "methods": {}, "cross": [0, ""], "tables": {}, **parts}
    return "{" + ",".join(f'"{name}":{v if isinstance(v, str) else json.dumps(v)}' for name, v in whole.items()) + "}"


def whole_numbers(count: int) -> bytes:
    """A stream of zeros."""
    return struct.pack("<I", count) + bytes(count)


def old_histograms(size: int) -> bytes:
    named = many(lambda n: f'"{n:x}":0', size * 9 // 10 - 300, 8)
    gaps = f'{{"total":{{"sums":[0,""],"histograms":{{{named}}}}}}}'
    return of_version_2(tree(gaps=gaps), [[]], l=whole_numbers(named.count(":")))


def old_gaps(size: int) -> bytes:
    few = min(size * 9 // 10, NODES // 3 * 53)
    gaps = many(lambda n: f'"{n:x}":{{"sums":[0,""],"histograms":{{"log_ratio/+":0}}}}', few, 53)
    return of_version_2(tree(gaps=f"{{{gaps}}}"), [[]], l=whole_numbers(gaps.count("ratio")))


def old_numbers(size: int) -> bytes:
    return of_version_2(tree(batch=0), [[]], l=whole_numbers(size - 500))


def old_fractions(size: int) -> bytes:
    return of_version_2(tree(), [[]], f=bytes(size - 500))


def old_names(size: int) -> bytes:
    names = "[[" + many(lambda n: f'"{n:x}"', size * 3 // 4, 7) + "]]"
    return of_version_2(tree(batch='[0,"i"]'), names=(), texts=None) if size < 1000 else _with_names(names, size // 8)


def _with_names(names: str, count: int) -> bytes:
    outline = tree(batch='[0,"i"]')
    header = f'[{names},{outline},{{"specs":{{}}}}]'.encode()
    streams = [struct.pack("<I", 0), struct.pack("<I", 0), whole_numbers(count), b"", b""]
    packed = [zlib.compress(part) for part in (header, *streams)]
    return posted(bytes([2]) + packed_tree._LENGTHS.pack(*map(len, packed)) + b"".join(packed))


def old_tables(size: int) -> bytes:
    names = [f"{n:x}" for n in range(ROWS)]
    tables = {part.format(name): [0, ""] for name in names for part in OF_ROWS[:6]}
    return of_version_2(tree(tables=tables), [[]], {"specs": {name: {} for name in names}})


#: What makes a body of so many decompressed bytes.
MADE: Final[Mapping[str, Callable[[int], bytes]]] = {
    "keys": lambda size: headed(keys=keys_listed(size)),
    "wide keys": lambda size: headed(keys=wide_keys(size)),
    "names that are absent": lambda size: headed(absent=keys_listed(size)),
    "keys of specs": lambda size: headed(specs=keyed("0", size)),
    "objects in specs": lambda size: headed(specs=keyed("{}", min(size, NODES * 10))),
    "nested lists in specs": lambda size: headed(specs=nested(size)),
    "a wide text in specs": lambda size: headed(specs='{"a":"\U0001f600' + "a" * (size - 300) + '"}'),
    "ids": lambda size: headed(ids=keys_listed(size)),
    "sizes of columns": lambda size: headed(columns=many_columns(size)),
    "tables of rows": tables_of_rows,
    "tables that there are": tables_that_there_are,
    "bytes for a buffer": partial(full_columns, "|u1"),
    "whole numbers for a buffer": partial(full_columns, "<u8"),
    "numbers for the worst": full_worst,
    "histograms of version 2": old_histograms,
    "gaps of version 2": old_gaps,
    "numbers of version 2": old_numbers,
    "fractions of version 2": old_fractions,
    "names of version 2": old_names,
    "tables of version 2": old_tables,
    "a good one": lambda size: posted(GOOD),
}  # fmt: skip


LIMITS: Final = limits_with()


def read(body: bytes) -> None:
    """Read a summary, whatever comes of it."""
    with contextlib.suppress(Refusal):
        decode_batch(body, frame.MEDIA_TYPE, LIMITS)


def read_small() -> None:
    """Read a good one, and one of version 2."""
    for small in (posted(GOOD), of_version_2(tree())):
        read(small)


def taken(body: bytes) -> tuple[int, float]:
    """The most bytes that reading it holds at once, and how long it computes, seconds; of who has read small ones."""
    read_small()  # what code takes that runs for the first time
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, begun = resident("VmRSS"), time.process_time()
    read(body)
    return resident("VmHWM") - before, time.process_time() - begun


if __name__ == "__main__":
    read_small()  # what is computed once, for all children
    # Some make one body of all sizes that are large enough.
    measured = cache(lambda body: in_a_child(partial(taken, body)))
    json.dump({name: {size: measured(make(size)) for size in SIZES} for name, make in MADE.items()}, sys.stdout)
