"""What a trainer holds becomes the arrays of the wire: every layout, dtype and memory, copied once."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.client.mistakes import Mistake
from offpolicy_monitor.client.shapes import check, lengths_of_rows
from offpolicy_monitor.client.values import Value, copies, read

ROWS = [[-1.0, -2.0, -3.0], [-4.0], [-0.5, -0.25]]
PACKED = [-1.0, -2.0, -3.0, -4.0, -0.5, -0.25]


def copied(name: str, value: Any) -> np.ndarray:
    return copies({name: read(name, value)})[0][name]


def nested() -> torch.Tensor:
    """Made by the test: the first one takes a second."""
    return torch.nested.nested_tensor([torch.tensor(row) for row in ROWS], layout=torch.jagged)


@pytest.mark.parametrize(
    "value",
    [
        np.array(PACKED, np.float32),
        torch.tensor(PACKED),
        torch.tensor(PACKED, requires_grad=True) * 1.0,
        torch.tensor([PACKED, PACKED]).T[:, 0],
        np.repeat(np.array(PACKED, np.float32), 2)[::2],
        PACKED,
        tuple(PACKED),
        ROWS,
        [np.array(row, np.float32) for row in ROWS],
        [torch.tensor(row, requires_grad=True) for row in ROWS],
        nested,
    ],
    ids=["numpy", "torch", "with-grad", "strided-torch", "strided-numpy", "list", "tuple", "lists", "arrays", "tensors",
         "nested"],
)  # fmt: skip
def test_every_way_to_hold_six_numbers_is_the_same_packed_array(value: Any) -> None:
    array = copied("logprobs", value() if callable(value) else value)
    assert array.dtype == np.float32 and array.flags.c_contiguous
    assert array.tolist() == PACKED


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_float_dtype_stays_what_it_is(dtype: str) -> None:
    assert copied("logprobs", torch.tensor(PACKED, dtype=getattr(torch, dtype))).dtype == np.dtype(dtype)
    assert copied("logprobs", np.array(PACKED, dtype)).dtype == np.dtype(dtype)


def test_bfloat16_is_carried_as_its_bit_patterns() -> None:
    tensor = torch.tensor([[-1.0, -0.3], [2.0, 0.0]], dtype=torch.bfloat16)
    for given in (tensor, tensor.T.contiguous().T, list(tensor)):
        value = read("logprobs", given)
        assert value.bfloat16 and value.nbytes == 8 and value.shape == (2, 2)
        array = value.copied()
        assert array.dtype == np.uint16
        assert ((array.astype(np.uint32) << 16).view(np.float32) == tensor.float().numpy()).all()


def test_rows_of_one_length_are_padded_and_others_packed_with_their_lengths() -> None:
    even = read("logprobs", [[-1.0, -2.0], [-3.0, -4.0]])
    assert (even.shape, even.widths) == ((2, 2), None)
    uneven = read("logprobs", ROWS)
    assert (uneven.shape, uneven.widths) == ((6,), (3, 1, 2))
    lengths = lengths_of_rows({"logprobs": uneven})
    assert lengths is not None and lengths.tolist() == [3, 1, 2]


def test_an_empty_row_is_a_sequence_without_tokens() -> None:
    value = read("mask", [[1, 0], [], [1]])
    assert (value.widths, value.copied().tolist()) == ((2, 0, 1), [1, 0, 1])


def test_pythons_own_numbers_take_the_dtypes_of_the_contract() -> None:
    assert copied("advantages", [1, -1]).dtype == np.float32
    assert copied("group_ids", [1, 2]).dtype == np.int64
    assert copied("mask", [True, False]).dtype == np.bool_
    assert copied("experts", [[[1, 2]], [[0, 3]]]).dtype == np.uint16


@pytest.mark.parametrize(
    "make",
    [
        lambda n: np.zeros(n, np.float32),
        lambda n: torch.zeros(n).bfloat16(),
        lambda n: torch.zeros(2, n).T,
        lambda n: [torch.zeros(n), torch.zeros(n // 2)],
    ],
)
def test_the_memory_taken_is_that_of_one_copy(make: Any) -> None:
    value = make(1_000_000)
    tracemalloc.start()
    described = read("logprobs", value)
    before = tracemalloc.get_traced_memory()[0]
    array = described.copied()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert before < 100_000
    assert array.nbytes == described.nbytes <= peak < described.nbytes + 100_000


def test_a_copy_does_not_follow_what_the_trainer_writes_later() -> None:
    tensor, array = torch.zeros(4), np.zeros(4, np.float32)
    kept = [copied("logprobs", tensor), copied("logprobs", array)]
    tensor += 1
    array += 1
    assert [copy.tolist() for copy in kept] == [[0.0] * 4] * 2


@pytest.mark.parametrize("value", ["text", object(), [object()], {"a": 1}, [[1.0], ["x"]]])
def test_what_is_no_array_of_numbers_is_a_mistake(value: Any) -> None:
    with pytest.raises(Mistake):
        check({"logprobs": read("logprobs", value), "old_logprobs": read("old_logprobs", [1.0])}, False)


def values(**arrays: Any) -> dict[str, Value]:
    return {name: read(name, value) for name, value in arrays.items()}


FLAT = np.zeros(6, np.float32)
PAD = np.zeros((2, 3), np.float32)
PAIR = {"old_logprobs": FLAT, "logprobs": FLAT}
PADDED = {"old_logprobs": PAD, "logprobs": PAD}


@pytest.mark.parametrize(
    "arrays",
    [
        {**PAIR, "lengths": np.array([2, 4])},
        {**PAIR, "lengths": np.array([6, 0]), "advantages": np.zeros(2), "mask": np.ones(6)},
        {**PAIR, "lengths": np.array([2, 4]), "advantages": np.zeros(6), "turns": np.zeros(6, np.int64)},
        {**PADDED, "mask": np.ones((2, 3)), "rewards": np.zeros(2), "lengths": np.array([3, 1])},
        {**PADDED, "experts": np.zeros((2, 3, 4, 2), np.uint8), "policy_versions": np.zeros(2, np.int64)},
        {"old_logprobs": ROWS, "logprobs": ROWS, "mask": [[1, 1, 0], [1], [0, 1]], "advantages": [1.0, 2.0, 3.0]},
        {"old_logprobs": [], "logprobs": []},
    ],
)
def test_arrays_that_fit_together_are_taken(arrays: dict[str, Any]) -> None:
    check(values(**arrays), rollout=False)


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        ("unknown-array", {**PADDED, "logprob": PAD}),
        ("logprobs", {"logprobs": PAD}),
        ("lengths", PAIR),
        ("lengths", {**PAIR, "lengths": np.array([2, 3])}),
        ("lengths", {**PAIR, "lengths": np.array([7, -1])}),
        ("lengths", {**PADDED, "lengths": np.array([3, 4])}),
        ("lengths", {**PADDED, "lengths": np.array([3])}),
        ("lengths", {"old_logprobs": ROWS, "logprobs": ROWS, "lengths": np.array([2, 2, 2])}),
        ("rank", {"old_logprobs": PAD, "logprobs": np.zeros((2, 3, 1), np.float32)}),
        ("rank", {**PADDED, "rewards": PAD}),
        ("dtype", {**PADDED, "old_logprobs": np.zeros((2, 3), np.int64)}),
        ("dtype", {**PADDED, "group_ids": np.zeros(2, np.float32)}),
        ("dtype", {**PADDED, "logprobs": np.zeros((2, 3), np.complex64)}),
        ("shape", {**PADDED, "mask": np.ones((2, 4))}),
        ("shape", {**PADDED, "mask": np.ones(6)}),
        ("shape", {**PADDED, "advantages": np.zeros(3, np.float32)}),
        ("shape", {"old_logprobs": ROWS, "logprobs": [[1.0], [2.0, 3.0, 4.0], [5.0, 6.0]]}),
        ("sequences", {**PADDED, "rewards": np.zeros(3, np.float32)}),
        ("rows", {"old_logprobs": [np.zeros(2), np.zeros(3, np.float32)], "logprobs": FLAT}),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_a_mistake_of_their_kind(kind: str, arrays: dict[str, Any]) -> None:
    with pytest.raises(Mistake) as raised:
        check(values(**arrays), rollout=False)
    assert raised.value.kind == kind


def test_the_later_half_of_a_rollout_needs_the_current_log_probs_alone() -> None:
    check(values(logprobs=FLAT), rollout=True)
    check(values(logprobs=FLAT, advantages=np.zeros(2, np.float32)), rollout=True)
    with pytest.raises(Mistake, match="at least two"):
        check(values(old_logprobs=FLAT), rollout=True)
