"""Which entries to compiled code a batch takes: short work keeps the interpreter's lock, and is the same code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import batch, compiled, inspection, totals, worst
from offpolicy_monitor.fused.batch import MOST_SHORT, Batch, is_short
from offpolicy_monitor.fused.summarise import summarise
from offpolicy_monitor.measure.fused import Fused
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.vocabulary import LOGPROBS

PAIRS = (
    (inspection.inspect, inspection.inspect_short),
    (totals.finish, totals.finish_short),
    (worst.find, worst.find_short),
)


def of(tokens: int, sequences: int) -> RaggedBatch:
    """A batch with this many of each, whose last sequence has all of the tokens."""
    random = np.random.default_rng(tokens)
    columns = {name: -random.standard_exponential(tokens, np.float32) for name in LOGPROBS}
    lengths = np.zeros(sequences, np.int64)
    lengths[-1] = tokens
    return RaggedBatch.from_positions(lengths, columns, {"advantages": np.ones(sequences, np.float32)})


def summarised(source: RaggedBatch) -> Arrays:
    loaded = Batch(source, Origin())
    found = summarise(loaded, PRESETS)
    worst.worst(source, loaded.logprobs, found.gaps, found.ranking, 1)
    return found.arrays


def test_what_takes_as_long_as_a_batch_is_large_lets_go_of_the_lock_and_the_rest_does_not() -> None:
    kept = {entry.py_func.__name__ for entry in compiled.ENTRIES if not entry.targetoptions["nogil"]}
    assert kept == {"move", *(short.py_func.__name__ for _, short in PAIRS)}


@pytest.mark.parametrize(
    ("tokens", "sequences", "short"),
    [(MOST_SHORT - 1, 1, True), (MOST_SHORT, 1, False), (1, MOST_SHORT - 1, True), (1, MOST_SHORT, False)],
)
def test_a_batch_is_short_in_tokens_and_sequences_together(
    fused: Fused, monkeypatch: pytest.MonkeyPatch, tokens: int, sequences: int, short: bool
) -> None:
    called = list[str]()

    def noted(entry: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            called.append(entry.py_func.__name__)
            return entry(*arguments)

        return call

    for pair in PAIRS:
        for entry in pair:
            for module in (batch, totals, worst):
                if hasattr(module, entry.py_func.__name__):
                    monkeypatch.setattr(module, entry.py_func.__name__, noted(entry))
    source = of(tokens, sequences)
    summarised(source)
    assert is_short(source) == short
    assert called == [pair[short].py_func.__name__ for pair in PAIRS]


def test_either_entry_comes_to_the_same_bits(fused: Fused, monkeypatch: pytest.MonkeyPatch) -> None:
    source = of(500, 3)
    short = summarised(source)
    for module in (batch, worst):
        monkeypatch.setattr(module, "is_short", lambda source: False)
    assert summarised(source) == short


def test_nothing_is_compiled_anew_for_a_batch_of_another_size(fused: Fused) -> None:
    def overloads() -> list[int]:
        return [len(entry.signatures) for entry in compiled.ENTRIES]

    before = overloads()
    assert min(before) >= 1
    for tokens in (1, 100, 3 * MOST_SHORT):
        summarised(of(tokens, 2))
    assert overloads() == before
