"""The three layouts, two media types and all dtypes of a mask mean the same, and say so by their digest."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.digest import content_digest
from offpolicy_monitor.wire.message import Message

from tests.wire.bodies import JSON, LIMITS, decode_frame, json_body, whole

TOKEN = (
    "sampling_logprobs", "old_logprobs", "logprobs", "mask", "advantages", "policy_versions", "turns", "entropy",
    "experts",
)  # fmt: skip
DTYPES = {"mask": "u1", "policy_versions": "i8", "turns": "i8", "lengths": "i4", "group_ids": "i8", "experts": "u1"}


@dataclass(frozen=True)
class Content:
    """What a shard says, free of layout: per sequence a list per token array, and one value per sequence array."""

    tokens: dict[str, list[list[Any]]]
    sequences: dict[str, list[Any]]

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.tokens["logprobs"]]


finite = st.floats(-50, 50, width=32)
VALUES: dict[str, st.SearchStrategy] = {
    "mask": st.sampled_from([0, 1, 1, 1]),
    "policy_versions": st.integers(-1, 9),
    "turns": st.integers(0, 5),
    "advantages": finite,
    "entropy": finite,
    "experts": st.lists(st.lists(st.integers(0, 255), min_size=2, max_size=2), min_size=1, max_size=1),
}
logprob = st.none() | finite


@st.composite
def contents(draw: st.DrawFn) -> Content:
    lengths = draw(st.lists(st.integers(0, 4), max_size=4))
    optional = draw(st.sets(st.sampled_from([name for name in TOKEN if name != "logprobs"])))
    names = {"logprobs", "old_logprobs"} | optional

    def rows(name: str) -> list[list[Any]]:
        return [draw(st.lists(VALUES.get(name, logprob), min_size=n, max_size=n)) for n in lengths]

    sequences: dict[str, list[Any]] = {"rewards": [draw(finite) for _ in lengths]}
    if draw(st.booleans()):
        sequences["advantages"] = [draw(finite) for _ in lengths]
        names -= {"advantages"}
    return Content({name: rows(name) for name in sorted(names)}, sequences)


def flat(rows: list[list[Any]]) -> list[Any]:
    return [value for row in rows for value in row]


GARBAGE: dict[str, Any] = {"mask": 0, "policy_versions": -77, "turns": 9, "experts": [[7, 7]]}


def padded(name: str, rows: list[list[Any]], width: int, garbage: Any = 77.0) -> list[list[Any]]:
    return [row + [GARBAGE.get(name, garbage)] * (width - len(row)) for row in rows]


def array(name: str, values: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    if name == "experts":
        shape = (*shape, 1, 2)
    return np.array(values, float).astype(DTYPES.get(name, "f4")).reshape(shape)


def is_ambiguous(content: Content) -> bool:
    """A flat list of S == P values per token would be read as one per sequence."""
    lengths = content.lengths
    return sum(lengths) == len(lengths) and set(lengths) != {1} and bool(lengths)


def ragged_json(content: Content) -> Message:
    return decode({**content.tokens, **content.sequences})


def packed_json(content: Content) -> Message:
    tokens = {name: flat(rows) for name, rows in content.tokens.items()}
    return decode({**tokens, **content.sequences, "lengths": content.lengths})


def padded_json_with_lengths(content: Content) -> Message:
    width = max(content.lengths, default=0) + 1
    tokens = {name: padded(name, rows, width) for name, rows in content.tokens.items()}
    return decode({**tokens, **content.sequences, "lengths": content.lengths})


def packed_frame(content: Content) -> Message:
    tokens = {name: array(name, flat(rows), (sum(content.lengths),)) for name, rows in content.tokens.items()}
    sequences = {name: array(name, values, (len(values),)) for name, values in content.sequences.items()}
    return decode_frame({"step": 1}, lengths=np.array(content.lengths, np.int32), **tokens, **sequences)


def padded_frame(content: Content, lengths: bool = True) -> Message:
    size, width = len(content.lengths), max(content.lengths, default=0) + 1
    mask = content.tokens.get("mask") or [[1] * length for length in content.lengths]
    tokens = {
        name: array(name, padded(name, rows, width, np.nan), (size, width))
        for name, rows in {**content.tokens, "mask": mask}.items()
    }
    sequences = {name: array(name, values, (len(values),)) for name, values in content.sequences.items()}
    if lengths:
        sequences["lengths"] = np.array(content.lengths, np.int64)
    return decode_frame({"step": 1}, **tokens, **sequences)


def padded_frame_without_lengths(content: Content) -> Message:
    return padded_frame(content, lengths=False)


def decode(members: dict[str, Any]) -> Message:
    return whole(decode_batch(json_body(step=1, **members), JSON, LIMITS))


PACKED: list[Callable[[Content], Message]] = [packed_json, packed_frame]
PADDED: list[Callable[[Content], Message]] = [padded_json_with_lengths, padded_frame, padded_frame_without_lengths]


@given(content=contents())
def test_every_layout_means_the_same(content: Content) -> None:
    assert_same(content, PADDED)
    if is_ambiguous(content):
        content = Content({n: r for n, r in content.tokens.items() if n not in ("advantages", "policy_versions")}, {})
    assert_same(content, PACKED)


def assert_same(content: Content, layouts: list[Callable[[Content], Message]]) -> None:
    expected = ragged_json(content)
    for layout in layouts:
        got, named = layout(content), layout.__name__
        np.testing.assert_array_equal(got.batch.offsets, expected.batch.offsets, err_msg=named)
        assert got.batch.columns.keys() == expected.batch.columns.keys(), named
        assert got.batch.per_token == expected.batch.per_token, named
        for name, column in expected.batch.columns.items():
            if column.size or got.batch.columns[name].size:
                np.testing.assert_array_equal(got.batch.columns[name], column, err_msg=f"{named} {name}")
        assert content_digest(got) == content_digest(expected), named


@given(content=contents())
def test_the_decoded_tokens_are_those_under_the_mask(content: Content) -> None:
    batch = ragged_json(content).batch
    mask = content.tokens.get("mask") or [[1] * length for length in content.lengths]
    kept = [
        [np.float32(np.nan if value is None else value) for value, keep in zip(row, keeps, strict=True) if keep]
        for row, keeps in zip(content.tokens["logprobs"], mask, strict=True)
    ]
    for index, row in enumerate(kept):
        start, end = batch.offsets[index : index + 2]
        np.testing.assert_array_equal(batch.columns["logprobs"][start:end], row)
    assert batch.lengths.tolist() == content.lengths


def other(name: str, value: Any) -> Any:
    if name == "mask":
        return 1 - value
    if name == "experts":
        return [[value[0][0] ^ 1, value[0][1]]]
    return 0.125 if value is None else value + 1


@given(content=contents(), data=st.data())
def test_changing_one_valid_value_changes_the_digest(content: Content, data: st.DataObject) -> None:
    mask = content.tokens.get("mask") or [[1] * length for length in content.lengths]
    indices = [
        (name, s, t)
        for name, rows in content.tokens.items()
        for s, row in enumerate(rows)
        for t in range(len(row))
        if mask[s][t] or name == "mask"
    ]
    if not indices:
        return
    name, s, t = data.draw(st.sampled_from(indices))
    rows = [list(row) for row in content.tokens[name]]
    rows[s][t] = other(name, rows[s][t])
    changed = replace(content, tokens={**content.tokens, name: rows})
    assert content_digest(ragged_json(changed)) != content_digest(ragged_json(content))


@given(content=contents(), data=st.data())
def test_garbage_under_a_zero_of_the_mask_does_not_change_the_digest(content: Content, data: st.DataObject) -> None:
    mask = content.tokens.get("mask", [])
    indices = [
        (name, s, t)
        for name, rows in content.tokens.items()
        for s, keeps in enumerate(mask)
        for t, keep in enumerate(keeps)
        if not keep and name != "mask"
    ]
    if not indices:
        return
    name, s, t = data.draw(st.sampled_from(indices))
    rows = [list(row) for row in content.tokens[name]]
    rows[s][t] = other(name, rows[s][t])
    changed = replace(content, tokens={**content.tokens, name: rows})
    assert content_digest(ragged_json(changed)) == content_digest(ragged_json(content))


def test_a_padded_array_without_lengths_has_the_width_as_its_length() -> None:
    grid = np.zeros((2, 3), np.float32)
    batch = decode_frame({"step": 1}, old_logprobs=grid, logprobs=grid).batch
    assert (batch.lengths.tolist(), batch.tokens) == ([3, 3], 6)


def test_what_lies_beyond_the_lengths_is_cut_off() -> None:
    grid = np.array([[1, 2, np.nan], [3, np.inf, -9]], np.float32)
    mask = np.array([[1, 1, 7], [1, 255, 255]], np.uint8)
    batch = decode_frame({"step": 1}, old_logprobs=grid, logprobs=grid, mask=mask, lengths=np.array([2, 1])).batch
    assert batch.columns["logprobs"].tolist() == [1.0, 2.0, 3.0]
    assert batch.lengths.tolist() == [2, 1]
    assert batch.positions is None


def test_padded_log_probs_of_full_rows_are_not_copied() -> None:
    grid = np.zeros((2, 3), np.float32)
    message = decode_frame({"step": 1}, old_logprobs=grid, logprobs=grid, lengths=np.array([3, 3]))
    column = message.batch.columns["logprobs"]
    assert column.base is not None and not column.flags.owndata
