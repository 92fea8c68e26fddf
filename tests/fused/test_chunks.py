"""The figures of the pass are the same bit by bit on any number of threads, and again."""

import numpy as np
import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import batch as passes
from offpolicy_monitor.fused.batch import Batch
from offpolicy_monitor.fused.measured import EIGHTHS, LEAST_CHUNK, MOST_CHUNK, chunks
from offpolicy_monitor.fused.summarise import summarise
from offpolicy_monitor.fused.threads import Threads
from offpolicy_monitor.measure.fused import Fused
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary.arrays import Arrays

from tests.strategies import packed, random_sequences

pytestmark = pytest.mark.usefixtures("fused")
ORIGIN = Origin(3, 0)


def many_tokens() -> RaggedBatch:
    lengths = [*np.random.default_rng(2).integers(0, 4000, 80).tolist(), MOST_CHUNK + 7, 3]
    return packed(random_sequences(1, lengths, 0.2))


def made(batch: RaggedBatch, threads: int = 1) -> Arrays:
    return summarise(Batch(batch, ORIGIN), PRESETS, Threads(threads)).arrays


def test_any_number_of_threads_gives_the_same_bits() -> None:
    batch = many_tokens()
    assert len(chunks(batch.offsets)) > 3
    once = made(batch)
    assert all((made(batch, threads).buffer == once.buffer).all() for threads in (1, 2, 3))


def test_chunks_are_whole_sequences_and_have_each_once() -> None:
    for size in (LEAST_CHUNK, MOST_CHUNK):
        for lengths in ([0, 0, 5], [size, 1, size - 1, 0], [3 * size, 3 * size, 1], [1], [0, 7 * size, 0]):
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            found = chunks(offsets)
            assert [first for first, _ in found] == [0, *(last for _, last in found[:-1])]
            assert found[-1][1] == len(lengths)


def test_a_small_batch_is_one_chunk_and_a_large_one_is_eight_or_more_of_some_size() -> None:
    assert len(chunks(100 * np.arange(LEAST_CHUNK // 100))) == 1
    for tokens, number in (
        (2 * LEAST_CHUNK, 2), (EIGHTHS * LEAST_CHUNK, EIGHTHS), (EIGHTHS * MOST_CHUNK, EIGHTHS), (1 << 20, 32),
    ):  # fmt: skip
        assert len(chunks(64 * np.arange(tokens // 64 + 1))) == number


def test_what_the_pass_cannot_hold_is_left_to_torch(fused: Fused) -> None:
    batch = packed(random_sequences(1, [3, 4], 0.1))
    wide = {name: column.astype(np.float64) for name, column in batch.columns.items()}
    assert fused(RaggedBatch(batch.offsets, wide, batch.lengths, None, batch.per_token), PRESETS, ORIGIN, None) is None
    for value, left in ((1e16, True), (-1e16, True), (np.inf, False), (-1e14, False)):
        far = {**batch.columns, "logprobs": batch.columns["logprobs"].copy()}
        far["logprobs"][2] = value
        answer = fused(RaggedBatch(batch.offsets, far, batch.lengths, None, batch.per_token), PRESETS, ORIGIN, None)
        assert (answer is None) == left


def test_more_sequences_than_it_holds_figures_of_are_left_to_torch(
    fused: Fused, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = packed(random_sequences(1, [3, 4, 5], 0.1))
    monkeypatch.setattr(passes, "MOST_SEQUENCES", 2)
    assert fused(batch, PRESETS, ORIGIN, None) is None
