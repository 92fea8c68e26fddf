"""Input that is four times as long takes about four times as long to read or refuse, of whatever shape it is."""

import gzip
import json
import random
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial

import pytest
import zstandard

from tests.client.files import traces as folders
from tests.fixtures.reduced import arrays_of, envelope_of, raw_body
from tests.fuzz.targets import TARGETS, Target
from tests.pipeline.worst_summaries import MADE

#: Bytes of the shortest input of a shape, and how many times as long the longest one is.
LEAST, TIMES = 30_000, 4
#: Members of an object that are tried, beside one that nothing is known of.
PLACES = 2
#: Times as long that it may take: a square would be 16. Seconds that nothing is said about.
MOST, UNMEASURED = 9, 0.04

Shape = Callable[[int], str]
VALUES: Mapping[str, Shape] = {
    "lists in lists": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "objects in objects": lambda size: '{"a":' * (size // 6) + "0" + "}" * (size // 6),
    "many lists": lambda size: "[" + ",".join(["[]"] * (size // 3)) + "]",
    "many keys": lambda size: "{" + ",".join(f'"{n:x}":0' for n in range(size // 9)) + "}",
    "one key again and again": lambda size: "{" + ",".join(['"a":0'] * (size // 6)) + "}",
    "many numbers": lambda size: "[" + ",".join(["-0.5"] * (size // 5)) + "]",
    "many texts": lambda size: "[" + ",".join(['"ab"'] * (size // 5)) + "]",
    "a long number": lambda size: "1" * size,
    "a long fraction": lambda size: "0." + "1" * size,
    "a long exponent": lambda size: "1e" + "9" * size,
    "a long text": lambda size: '"' + "a" * size + '"',
    "backslashes": lambda size: '"' + "\\\\" * (size // 2) + '"',
    "halves of characters": lambda size: '"' + "\\ud800" * (size // 6) + '"',
    "wide characters": lambda size: '"' + "\U0001f600" * (size // 4) + '"',
}


def seconds(target: Target, data: bytes) -> float:
    """Of a processor."""
    began = time.thread_time()
    target.takes(data)
    return time.thread_time() - began


def assert_linear(target: Target, made: Callable[[int], bytes]) -> None:
    """By the least of three, as far as they are needed: the short one is of no interest beside next to nothing."""
    short, long = made(LEAST), made(TIMES * LEAST)
    took, allowed = [seconds(target, long)], UNMEASURED
    if took[0] >= allowed:
        allowed += MOST * min(seconds(target, short) for _ in range(3))
    while len(took) < 3 and min(took) >= allowed:
        took.append(seconds(target, long))
    assert min(took) < allowed, took


def in_place(data: bytes, value: str) -> list[bytes]:
    """A seed with the value in the place of each member of its first object, and beside them."""
    line, newline, rest = data.partition(b"\n")
    document = json.loads(line)
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        return [value.encode()]
    found = []
    for name in [*first, "x"]:
        text = json.dumps([{**first, name: "?!"}] if first is not document else {**first, name: "?!"})
        found.append(text.replace('"?!"', value, 1).encode() + newline + rest)
    return found


@pytest.mark.parametrize("shape", VALUES)
@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.is_json and name != "traces"])
def test_a_value_of_any_shape_is_read_or_refused_in_linear_time(name: str, shape: str) -> None:
    target = TARGETS[name]
    seed = target.seeds()[0]
    places = range(len(in_place(seed, "0")))
    for place in {*random.Random(name + shape).sample(places, min(PLACES, len(places))), places[-1]}:
        assert_linear(target, lambda size, at=place: in_place(seed, VALUES[shape](size))[at])


def chained(size: int) -> bytes:
    """A trace whose nodes are each the parent of the next."""
    count = size // 60
    episode, shipped, trained = folders.episode(1, 0), folders.shipped(1), folders.trained(1)
    quiet = [{"parent": n - 1 if n else None, "token_ids": [0], "mask": [False], "logprobs": []} for n in range(count)]
    trace = episode["traces"][0]
    trace["nodes"] = [*quiet, {"parent": count - 1, "token_ids": [1], "mask": [True], "logprobs": [-0.5]}]
    mine = [row for row in trained if row["trace_id"] == trace["id"]]
    mine[0]["branches"] = [{"index": 0, "trainer_logprobs": [None] * count + [-0.25]}]
    lines = ([episode], [row for row in shipped if row["trace_id"] == trace["id"]], mine)
    return b"\x1e".join(b"".join(json.dumps(line).encode() + b"\n" for line in part) for part in lines)


def starred(size: int) -> bytes:
    """A trace of one root and many leaves, each of which is named by the trainer as the first."""
    parts = chained(size).split(b"\x1e")
    row = json.loads(parts[2])
    row["branches"] = [{"index": 0, "trainer_logprobs": []}] * (size // 40)
    return b"\x1e".join((*parts[:2], json.dumps(row).encode() + b"\n"))


def crowded(size: int) -> bytes:
    """A frame with a long list of sequence ids and labels of no use."""
    ids = [f"{n:x}" for n in range(size // 10)]
    return raw_body(envelope_of(0, 1, sequence_ids=ids), arrays_of(1, 6, 40))


def many_tensors(size: int) -> bytes:
    named = {f"{n:x}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(size // 60)}
    header = json.dumps({"__metadata__": {"batch": '{"step":1}'}, **named}).encode()
    return struct.pack("<Q", len(header)) + header


SPECIAL: Mapping[tuple[str, str], Callable[[int], bytes]] = {
    ("traces", "a chain"): chained,
    ("traces", "one branch again and again"): starred,
    ("frame", "ids"): crowded,
    ("frame", "tensors"): many_tensors,
    ("zstd", "empty frames"): lambda size: zstandard.compress(b"") * (size // 9),
    ("gzip", "empty members"): lambda size: gzip.compress(b"", mtime=0) * (size // 20),
    ("csv", "columns"): lambda size: (",".join(f"gaps.{n:x}" for n in range(size // 10)) + "\n1" * 2).encode(),
    ("csv", "rows"): lambda size: (
        b"Step,run - gaps.mismatch.k3\n" + b"".join(b"%d,0.5\n" % n for n in range(size // 8))
    ),
    ("csv", "quotes"): lambda size: b"Step,gaps.mismatch.k3\n1," + b'"' * size,
    ("csv", "one step again and again"): lambda size: b"Step,run - gaps.mismatch.k3\n" + b"1,0.5\n" * (size // 6),
    ("cursor", "a long one"): lambda size: b"A" * size,
    ("jsonl", "many lines"): lambda size: TARGETS["jsonl"].seeds()[0] * (size // len(TARGETS["jsonl"].seeds()[0])),
    ("slime", "zeros"): lambda size: TARGETS["slime"].seeds()[0] + bytes(size),
    ("sealed", "zeros"): lambda size: TARGETS["sealed"].seeds()[0] + bytes(size),
    ("safetensors", "tensors"): many_tensors,
    ("stored", "zeros"): lambda size: b"\7" + bytes(size),
}


@pytest.mark.parametrize(("name", "shape"), SPECIAL, ids=lambda part: part)
def test_what_is_long_in_a_way_of_its_own_is_read_or_refused_in_linear_time(name: str, shape: str) -> None:
    assert_linear(TARGETS[name], SPECIAL[name, shape])


@pytest.mark.parametrize("name", MADE)
def test_a_summary_of_any_shape_is_read_or_refused_in_linear_time(name: str) -> None:
    target = Target("summary", partial(TARGETS["frame"].read), TARGETS["frame"].refusals, list)
    assert_linear(target, MADE[name])


@pytest.mark.parametrize(("power", "is_found"), [(1, False), (2, True)])
def test_a_square_is_found(power: int, is_found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: taken[0])

    def work(data: bytes) -> None:
        taken[0] += (len(data) / LEAST) ** power

    target = Target("power", work, (), list)
    with pytest.raises(AssertionError) if is_found else nullcontext():
        assert_linear(target, bytes)
