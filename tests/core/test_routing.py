"""Sets of experts against Python's own sets, cell by cell, and by hand."""

from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.core.routing import CHUNK_CELLS, rerouted, routing_sums


def ids(*cells: list[int], dtype: Any = np.uint8) -> Any:
    """One token, a layer a list."""
    return np.array([cells], dtype)


def missing(a: Any, b: Any) -> list[int]:
    """Of each cell, in order."""
    found, cells = rerouted(a, b), np.zeros(a.shape[:2], int)
    cells[found.tokens, found.layers] = found.missing
    return list(cells.ravel())


def random_sets(source: np.random.Generator, tokens: int, layers: int, k: int, dtype: Any = np.uint8) -> Any:
    """Distinct ids in any order, of k + 3 experts: most sets share some."""
    return np.argsort(source.random((tokens, layers, k + 3)), -1)[..., :k].astype(dtype)


def test_a_cell_lacks_the_experts_that_the_other_side_did_not_choose() -> None:
    a, b = ids([1, 2, 3, 4], [1, 2, 3, 4], [9, 8, 7, 6]), ids([1, 2, 3, 5], [1, 2, 3, 4], [1, 2, 3, 4])
    assert missing(a, b) == [1, 0, 4]
    assert missing(b, a) == [1, 0, 4]


def test_the_order_of_ids_is_irrelevant() -> None:
    assert missing(ids([3, 1, 2], [5, 6, 7]), ids([1, 2, 3], [7, 5, 8])) == [0, 1]


def test_an_id_that_repeats_names_the_same_expert_in_each_of_its_places() -> None:
    assert missing(ids([3, 3], [1, 1]), ids([3, 3], [1, 2])) == [0, 1]
    assert missing(ids([1, 1, 2], [1, 1, 2]), ids([2, 2, 1], [1, 2, 3])) == [0, 1]


def test_ids_of_one_byte_and_of_two_are_the_same_ids() -> None:
    assert missing(ids([3, 1], [255, 0]), ids([1, 3], [255, 256], dtype=np.uint16)) == [0, 1]


def test_the_token_and_the_layer_of_each_difference_are_told() -> None:
    a = np.zeros((3, 2, 2), np.uint8) + np.array([0, 1], np.uint8)
    b = a.copy()
    b[1, 1] = [4, 5]
    b[2, 0] = [1, 9]
    found = rerouted(a, b)
    assert (list(found.tokens), list(found.layers), list(found.missing)) == ([1, 2], [1, 0], [2, 1])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 6, 8, 9, 16])
def test_agreement_is_that_of_sets(k: int, dtype: Any) -> None:
    source = np.random.default_rng(k)
    a, b = (random_sets(source, 40, 3, k, dtype) for _ in range(2))
    b[::2] = a[::2, :, ::-1]
    cells = zip(a.reshape(-1, k).tolist(), b.reshape(-1, k).tolist(), strict=True)
    assert missing(a, b) == [k - len(set(one) & set(other)) for one, other in cells]


def test_sums_of_many_tokens_are_those_of_their_cells() -> None:
    source = np.random.default_rng(0)
    tokens, layers = CHUNK_CELLS // 24 + 100, 24
    a, b = (random_sets(source, tokens, layers, 2) for _ in range(2))
    chosen = source.random(tokens) < 0.7
    lacking = np.array(missing(a, b)).reshape(tokens, layers)
    whole, part = routing_sums(a, b), routing_sums(a, b, chosen)
    assert list(whole.missing) == list(lacking.sum(0))
    assert list(whole.changed_layers) == list((lacking > 0).sum(1))
    assert list(part.missing) == list(lacking[chosen].sum(0))
    assert list(part.changed_layers) == list((lacking > 0).sum(1) * chosen)


def test_columns_that_do_not_lie_in_one_piece_are_read_as_they_are() -> None:
    a, b = (random_sets(np.random.default_rng(seed), 30, 4, 4) for seed in (1, 2))
    assert missing(a[::3, ::2], b[::3, ::2]) == missing(a[::3, ::2].copy(), b[::3, ::2].copy())


def test_no_token_has_no_difference() -> None:
    none = np.empty((0, 4, 2), np.uint8)
    assert len(rerouted(none, none).tokens) == 0
    assert list(routing_sums(none, none).missing) == [0, 0, 0, 0]


def test_shapes_and_dtypes_that_are_no_expert_ids_are_refused() -> None:
    a = np.zeros((2, 3, 4), np.uint8)
    with pytest.raises(ValueError, match="twice"):
        rerouted(a, a[:, :2])
    with pytest.raises(ValueError, match="twice"):
        rerouted(a[0], a[0])
    with pytest.raises(TypeError, match="int64"):
        rerouted(a, a.astype(np.int64))  # pyrefly: ignore[bad-argument-type]
