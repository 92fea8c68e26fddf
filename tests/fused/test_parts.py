"""What is kept from batch to batch, rooms, plans and ways of reading, leaves no trace in the next one's figures."""

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import evaluate
from offpolicy_monitor.fused.batch import Batch
from offpolicy_monitor.fused.moves import moves_of
from offpolicy_monitor.fused.parts import SPARE, Part, applicable, asked
from offpolicy_monitor.fused.summarise import in_slices, reading, summarise
from offpolicy_monitor.measure.fused import Fused
from offpolicy_monitor.methods import PRESETS, MethodRow, parse_rows
from offpolicy_monitor.slices import finished
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.scheme import COUNTS
from offpolicy_monitor.vocabulary import LOGPROBS

from tests.strategies import packed, random_sequences

pytestmark = pytest.mark.usefixtures("fused")


def batches() -> list[RaggedBatch]:
    whole = random_sequences(1, [40, 700, 3], 0.2)
    holes = random_sequences(2, [30, 5], 0.2)
    holes[0].logprobs["sampling_logprobs"][3] = float("nan")
    nothing = random_sequences(3, [4], 0.2)
    nothing[0].logprobs["logprobs"][:] = [float("inf")] * 4
    return [packed(sent) for sent in (whole, holes, nothing, random_sequences(4, [40, 700, 3], 2.0))]


def test_a_batch_has_the_same_bits_whatever_was_measured_before_it(fused: Fused) -> None:
    sent = batches()
    first = [fused(batch, PRESETS, Origin(3, 0), 2) for batch in sent]
    for batch, before in reversed(list(zip(sent, first, strict=True))):
        again = fused(batch, PRESETS, Origin(3, 0), 2)
        assert again is not None and before is not None
        assert again.arrays.scheme is before.arrays.scheme
        assert (again.arrays.buffer == before.arrays.buffer).all() and again.worst == before.worst


def test_what_compiled_code_holds_lives_as_long_as_its_room_and_no_longer() -> None:
    batch = Batch(batches()[0], Origin(3))
    chosen = batch.parts()[0]
    rows = applicable(asked(PRESETS), batch.gaps, batch.has_advantages)
    room = Part(batch.kind(0), rows, chosen.gaps, chosen.joint, chosen.alone).workspace()
    held, numbers = room.held, weakref.ref(room.flats.numbers)
    del room
    assert numbers() is not None
    del held
    assert numbers() is None


def test_each_shard_and_label_has_its_own_buckets() -> None:
    batch = batches()[0]

    def paths(origin: Origin) -> set[str]:
        return {path for path in summarise(Batch(batch, origin), PRESETS).arrays.under("breakdown") if path[10] in "ls"}

    lengths = {f"breakdown/length/{gap}" for gap in ("mismatch", "staleness", "total", "cross")}
    for shard, host in ((7, "a/b"), (8, "c")):
        dimensions = f"shard/{shard}", f"label:host/{host.replace('/', '%2F')}"
        own = {path.replace("length", dimension) for path in lengths for dimension in dimensions}
        assert paths(Origin(0, shard, {"host": host})) == own | lengths
    assert paths(Origin()) == lengths


def test_what_is_told_of_a_summary_as_filled_is_what_is_not_zero_in_it() -> None:
    for batch in batches():
        arrays = summarise(Batch(batch, Origin(3, 0)), PRESETS).arrays
        (where, counts), whole = arrays.filled, arrays.sections[COUNTS]
        assert (where == np.flatnonzero(whole)).all() and (counts == whole[where]).all()


def with_signs_of_tokens() -> RaggedBatch:
    """Three sequences: A of both signs and 0, of one sign, and of both again in more tokens."""
    source, lengths = np.random.default_rng(5), np.array([5, 90, 700])
    tokens = int(lengths.sum())
    columns = {name: -source.standard_exponential(tokens, np.float32) for name in LOGPROBS}
    signs = source.integers(-1, 2, tokens).astype(np.float32)
    signs[5:95] = 1
    return RaggedBatch.from_positions(lengths, columns | {"advantages": signs}, {})


def test_what_a_part_did_not_see_it_did_not_count_and_its_room_is_left_full_of_zeros() -> None:
    for batch in [*batches(), with_signs_of_tokens()]:
        parts = list[Part]()

        def part_of(*what: Any, parts: list[Part] = parts) -> Part:
            parts.append(Part(*what))
            return parts[-1]

        loaded = Batch(batch, Origin())
        own = applicable(asked(PRESETS), loaded.gaps, loaded.has_advantages)
        assert finished(in_slices(loaded, own, part_of, reading)).arrays == summarise(loaded, PRESETS).arrays
        rooms = [room.flats for part in parts if (room := SPARE.taken(part)) is not None]
        assert rooms and not any(flat.any() for room in rooms for flat in room)


def test_rows_that_are_equal_are_the_same_to_the_pass() -> None:
    again = tuple(replace(row, parameters=dict(row.parameters)) for row in PRESETS)
    assert asked(again) is asked(PRESETS) and asked(again[1:]) is not asked(PRESETS)


def test_no_count_is_in_two_tables() -> None:
    arrays = Arrays.of(LAYOUT, {"length/total/tokens": {"": np.arange(1, 257)}, "length/total/sequences": {"": 0}})
    arrays["length/total/sequences"][...] = 0
    needs = np.zeros(256, np.int64)
    assert moves_of(arrays, 1, 0, needs).counts.T.tolist() == [[0, 0, 256, 0, 0]]
    arrays["length/total/sequences"][4] = 3
    with pytest.raises(ValueError, match="in two tables"):
        moves_of(arrays, 1, 0, needs)


def test_rows_that_are_evaluated_again_answer_what_they_did_and_few_are_remembered() -> None:
    first, other = (Batch(batch, Origin()) for batch in (with_signs_of_tokens(), batches()[0]))
    wanted = [*PRESETS[:6], *parse_rows([{"method": "mask", "upper": 1.5}])]

    def answer(batch: Batch, rows: Sequence[MethodRow]) -> dict[str, Any]:
        return finished(evaluate.evaluation(batch, rows, "token", lambda arrays: arrays)).answer()

    evaluate._way_of.cache_clear()
    before, between = answer(first, wanted), answer(other, wanted)
    for upper in np.linspace(1.1, 3.0, 2 * evaluate.REMEMBERED):
        answer(first, parse_rows([{"method": "mask", "upper": upper}]))
    assert evaluate._way_of.cache_info().currsize == evaluate.REMEMBERED
    hits = evaluate._way_of.cache_info().hits
    for batch, expected in ((first, before), (other, between), (first, before)):
        np.testing.assert_equal(answer(batch, wanted), expected)
    assert evaluate._way_of.cache_info().hits > hits
