"""How experts differ is counted by the pass as torch's form and core.routing count it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.batch import UNKNOWN_ORIGIN, RaggedBatch
from offpolicy_monitor.fused import routing
from offpolicy_monitor.fused.threads import Threads
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.fused import Fused
from offpolicy_monitor.vocabulary import EXPERT_IDS

from tests.fixtures.fused import loaded_pass
from tests.fused.agreement import assert_record
from tests.reference import Sequence
from tests.strategies import packed, sequences
from tests.summary.records import records_of

pytestmark = pytest.mark.usefixtures("fused")


def with_experts(batch: RaggedBatch, experts: dict[str, Any]) -> RaggedBatch:
    return RaggedBatch(
        batch.offsets, {**batch.columns, **experts}, batch.lengths, batch.positions, batch.per_token | experts.keys()
    )


def drawn(tokens: int, layers: int, k: int, most: int, differ: float, seed: int) -> list[Any]:
    """Ids of three policies that differ in some cells, in their order, or in nothing."""
    random = np.random.default_rng(seed)
    found = [random.integers(0, most + 1, (tokens, layers, k))]
    for _ in EXPERT_IDS[1:]:
        other = random.permuted(found[-1], axis=2) if random.random() < 0.3 else found[-1].copy()
        moved = random.random((tokens, layers)) < differ
        other[moved] = random.integers(0, most + 1, (int(moved.sum()), k))
        found.append(other)
    return found


def assert_agrees(batch: RaggedBatch) -> dict[str, Any]:
    got = loaded_pass()(batch, (), UNKNOWN_ORIGIN, None)
    assert got is not None
    of_torch = Measurer("cpu").measure(batch, ()).arrays
    mine, theirs = (
        {path: record for path, record in records_of(arrays).items() if path.startswith("routing/")}
        for arrays in (got.arrays, of_torch)
    )
    assert mine.keys() == theirs.keys()
    for path, record in theirs.items():
        assert_record(path, mine[path], record)
    return mine


@settings(max_examples=60)
@given(
    sent=sequences(), layers=st.sampled_from([1, 2, 5, 48]), k=st.sampled_from([1, 2, 3, 8, 9]),
    most=st.sampled_from([3, 255, 65535]), differ=st.sampled_from([0.0, 0.1, 1.0]),
    names=st.sets(st.sampled_from(EXPERT_IDS)), seed=st.integers(0, 1000),
)  # fmt: skip
def test_any_experts(
    sent: list[Sequence], layers: int, k: int, most: int, differ: float, names: set[str], seed: int
) -> None:
    batch = packed(sent)
    ids = zip(EXPERT_IDS, drawn(batch.tokens, layers, k, most, differ, seed), strict=True)
    sizes = {name: np.uint16 if most > 255 or (seed % 2 and name == EXPERT_IDS[0]) else np.uint8 for name in EXPERT_IDS}
    experts = {name: of.astype(sizes[name]) for name, of in ids if name in names}
    assert bool(assert_agrees(with_experts(batch, experts))) <= (len(names) > 1)


def test_chunks_and_threads_change_no_bit() -> None:
    random = np.random.default_rng(3)
    tokens = 3 * routing.CHUNK + 11
    mu, old, pi = (-random.exponential(1.0, tokens).astype(np.float32) for _ in EXPERT_IDS)
    ids = [of.astype(np.uint8) for of in drawn(tokens, 3, 4, 100, 0.2, 1)]
    once, again = (list(routing.counted((mu, old, pi), ids, Threads(number))) for number in (1, 3))
    assert str(once) == str(again) and len(once) == 15


def test_ids_of_other_shapes_are_refused(fused: Fused) -> None:
    nothing = np.zeros(0, np.float32)
    ids = [np.zeros((4, 2, k), np.uint8) for k in (2, 2, 3)]
    with pytest.raises(ValueError, match="of one shape"):
        list(routing.counted((nothing, nothing, nothing), ids))
