"""Worst as it is stored and as it is answered: bit for bit back, small, and with shares of the step's own total."""

from dataclasses import replace
from functools import cache, reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.summary import StepSummary, from_bytes, to_bytes
from offpolicy_monitor.summary.stored.named import Parts, summary_of
from offpolicy_monitor.summary.stored.worst_columns import in_columns, sequences_of
from offpolicy_monitor.summary.stored.worst_merge import columns_of
from offpolicy_monitor.summary.tables.worst import (
    GAPS,
    LARGEST,
    MOST,
    RANKINGS,
    Columns,
    GapFigures,
    Position,
    Worst,
    WorstSequence,
    abs_log_ratio_max,
)
from offpolicy_monitor.summary.tables.worst_figures import first_of, standing_in

SINGLES = st.floats(-LARGEST, LARGEST, width=32)
COUNTS = st.integers(0, 2**40)
LOGPROBS = st.none() | st.floats(-1e300, 1e300) | SINGLES
POSITIONS = st.lists(st.builds(Position, COUNTS, st.tuples(LOGPROBS, LOGPROBS, LOGPROBS)), min_size=1, max_size=4)
IDS = st.none() | st.text(max_size=4)
RANKS = st.none() | st.integers(1, 5)
SOME_GAPS = st.lists(st.sampled_from(list(GAPS)), unique=True)
SENT = st.lists(st.sampled_from([("advantages", False), ("policy_versions", True), ("rewards", False)]), unique=True)


@cache
def numbers(whole: bool, tokens: int) -> st.SearchStrategy[Any]:
    """What is kept beside log-probs: one number, or one for each token."""
    one = st.integers(-1, 2**62) if whole else st.none() | st.floats(-1e300, 1e300)
    return one | st.lists(one, min_size=tokens, max_size=tokens).map(tuple)


@st.composite
def sequences(draw: st.DrawFn, among: st.SearchStrategy[list[Position]]) -> WorstSequence:
    """Any sequence whose largest |d| is that of its positions, as all that are measured; they are some of `among`."""
    positions = tuple(draw(among))
    gaps = {
        gap: GapFigures(draw(COUNTS), abs_log_ratio_max(positions, gap), draw(SINGLES), draw(SINGLES))
        for gap in draw(SOME_GAPS)
    }
    columns = None
    if (ranks := draw(RANKS)) is not None:
        tokens = tuple(draw(among))
        beside = {name: draw(numbers(whole, len(tokens))) for name, whole in draw(SENT)}
        columns = Columns(ranks, tokens, beside)
    return WorstSequence(draw(COUNTS), draw(COUNTS), draw(COUNTS), gaps, positions, draw(IDS), columns)


@st.composite
def several(draw: st.DrawFn) -> Worst:
    """Sequences whose positions are some of a few, since each takes as long to draw as all else of a sequence."""
    among = st.lists(st.sampled_from(draw(POSITIONS)), max_size=3)
    return Worst.of(draw(st.lists(sequences(among), max_size=6)))


WORST = several()


@given(st.lists(WORST, max_size=4))
def test_shards_merged_by_columns_are_stored_as_their_sequences_would_be(parts: list[Worst]) -> None:
    whole = reduce(Worst.merge, (Worst(tuple(map(in_columns, part.sources))) for part in parts), Worst())

    columns, ids = columns_of(whole)

    assert sequences_of(columns, ids) == whole.sequences
    expected = columns_of(Worst.later(lambda: whole.sequences))
    assert ([column.tobytes() for column in columns], ids) == (
        [column.tobytes() for column in expected[0]],
        expected[1],
    )


@given(worst=WORST)
def test_the_worst_are_read_back_bit_for_bit(worst: Worst) -> None:
    summary = StepSummary(worst=worst)
    assert from_bytes(to_bytes(summary)) == summary
    columns, ids = columns_of(worst)
    assert sequences_of(columns, ids) == worst.sequences


@given(a=WORST, b=WORST, c=WORST)
def test_merging_is_commutative_and_associative_and_empty_is_its_identity(a: Worst, b: Worst, c: Worst) -> None:
    parts = [[replace(s, shard=3 * s.shard + n) for s in w.sequences] for n, w in enumerate((a, b, c))]
    left, middle, right = map(Worst.of, parts)
    assert left.merge(middle) == middle.merge(left)
    assert left.merge(middle).merge(right) == left.merge(middle.merge(right))
    assert left.merge(Worst()) == left == Worst().merge(left) == left.merge(left)


def batch(sequences: int, ids: bool) -> RaggedBatch:
    """2,000 tokens per sequence, whose log-probs have every bit of a float32."""
    source = np.random.default_rng(3)
    lengths = source.integers(1000, 3000, sequences)
    sampling = -source.standard_exponential(int(lengths.sum()), np.float32)
    columns = {"sampling_logprobs": sampling}
    for name, spread in (("old_logprobs", 0.01), ("logprobs", 0.06)):
        columns[name] = sampling + np.float32(spread) * source.standard_normal(len(sampling), np.float32)
    names = tuple(f"prompt-{index // 8}-{index % 8}" for index in range(sequences)) if ids else None
    return RaggedBatch.from_positions(lengths, columns, {}, sequence_ids=names)


@pytest.mark.parametrize(("ids", "most"), [(False, 74), (True, 77)])
def test_without_raw_tokens_a_sequence_takes_some_seventy_bytes_of_the_stored_summary(ids: bool, most: int) -> None:
    summary = Measurer("cpu").measure(batch(100, ids), (), Origin(shard=0))
    number = len(summary.worst.sequences)
    assert 15 < number <= len(RANKINGS) * MOST
    assert len(to_bytes(summary)) - len(to_bytes(replace(summary, worst=Worst()))) < most * number


def test_a_summary_without_worst_sequences_is_as_small_as_before_they_were_kept() -> None:
    assert columns_of(Worst()) == ([], [])
    assert sequences_of([], []) == Worst().sequences == ()


def worst_figures(summary: StepSummary, gap: str | None, by: str | None, limit: int) -> list[dict[str, Any]]:
    """The answer of one gradient step."""
    return [one.answer() for one in first_of(standing_in(4, 1, summary), gap, by)][:limit]


def test_a_step_answers_each_sequence_once_with_its_places_and_its_share_of_the_step() -> None:
    far = {"total": GapFigures(4, 2.0, -0.5, 3.0)}
    near = {"total": GapFigures(2, 0.5, 0.75, 1.0)}
    positions = (Position(1, (-1.0, None, -0.5)), Position(7, (-1.0, None, -3.0)))
    worst = Worst.of([WorstSequence(0, 2, 5, far, positions, "p0"), WorstSequence(1, 0, 2, near)])
    summary = summary_of(Parts(gaps={"total": {"tokens": 6, "k3": 8.0}}, worst=worst))
    first, second = worst_figures(summary, None, None, 10)
    assert first == {
        "step": 4,
        "minibatch": 1,
        "shard": 0,
        "index": 2,
        "id": "p0",
        "tokens": 5,
        "by": [
            {"gap": "total", "by": "abs_log_ratio_max", "rank": 1},
            {"gap": "total", "by": "k3_share", "rank": 1},
            {"gap": "total", "by": "log_geometric_ratio", "rank": 2},
        ],
        "gaps": {
            "total": {
                "tokens": 4,
                "log_geometric_ratio": -0.5,
                "log_product_ratio": -2.0,
                "abs_log_ratio_max": 2.0,
                "k1": 0.5,
                "k3": 0.75,
                "k3_share": 0.375,
            }
        },
        "positions": [
            {"position": 7, **logprobs(-1.0, None, -3.0), "log_ratio": {"total": -2.0}},
            {"position": 1, **logprobs(-1.0, None, -0.5), "log_ratio": {"total": 0.5}},
        ],
    }
    assert second["id"] is None and "columns" not in second
    assert second["gaps"]["total"]["k3_share"] == 0.125
    assert [s["index"] for s in worst_figures(summary, "total", "log_geometric_ratio", 10)] == [0, 2]
    assert [s["index"] for s in worst_figures(summary, None, None, 1)] == [2]
    assert worst_figures(summary, "mismatch", None, 10) == []


def logprobs(*values: float | None) -> dict[str, Any]:
    return dict(zip(("sampling_logprobs", "old_logprobs", "logprobs"), values, strict=True))


def test_raw_tokens_are_answered_as_columns_of_what_was_sent() -> None:
    tokens = (Position(3, (-1.0, None, -2.0)), Position(5, (None, None, -1.0)))
    sequence = WorstSequence(0, 0, 2, {"total": GapFigures(1, 1.0, -1.0, 0.4)}, tokens[:1], None, Columns(1, tokens))
    [answer] = worst_figures(StepSummary(worst=Worst.of([sequence])), None, None, 1)
    assert answer["columns"] == {"position": [3, 5], "sampling_logprobs": [-1.0, None], "logprobs": [-2.0, -1.0]}
    assert answer["gaps"]["total"]["k3_share"] is None


def test_what_was_sent_of_a_sequence_or_of_its_tokens_is_answered_beside_their_log_probs() -> None:
    tokens = (Position(3, (-1.0, None, -2.0)), Position(5, (None, None, -1.0)))
    beside: dict[str, Any] = {"advantages": (0.5, -1.5), "policy_versions": (7, -1), "rewards": 2.0}
    columns = Columns(1, tokens, beside)
    sequence = WorstSequence(0, 0, 2, {"total": GapFigures(1, 1.0, -1.0, 0.4)}, tokens[:1], None, columns)
    stored = from_bytes(to_bytes(StepSummary(worst=Worst.of([sequence]))))
    [answer] = worst_figures(stored, None, None, 1)
    assert answer["columns"] == {
        "position": [3, 5],
        "sampling_logprobs": [-1.0, None],
        "logprobs": [-2.0, -1.0],
        "advantages": [0.5, -1.5],
        "policy_versions": [7, -1],
        "rewards": 2.0,
    }


def test_a_sequence_kept_without_anything_beside_its_log_probs_is_stored_as_it_was_before() -> None:
    tokens = (Position(3, (-1.0, None, -2.0)),)
    sequence = WorstSequence(0, 0, 2, {"total": GapFigures(1, 1.0, -1.0, 0.4)}, tokens, None, Columns(1, tokens))
    columns, _ = columns_of(Worst.of([sequence]))
    assert len(columns) == 9
    further = columns_of(Worst.of([replace(sequence, columns=Columns(1, tokens, {"rewards": 1.0}))]))[0]
    assert [column.tolist() for column in further[9:]] == [[0], [], [0], [], [1], [1.0]]
    assert [column.tobytes() for column in further[:9]] == [column.tobytes() for column in columns]


def test_every_gap_is_ranked_by_every_figure() -> None:
    assert len(RANKINGS) == 9


def test_sequences_of_several_steps_are_ranked_against_each_other_by_what_they_are_and_not_by_their_share() -> None:
    quiet = Worst.of([WorstSequence(0, 0, 2, {"total": GapFigures(2, 0.1, 0.1, 0.5)})])
    loud = Worst.of([WorstSequence(0, n, 2, {"total": GapFigures(2, 1.0, 0.5 + n, 2.0)}) for n in range(MOST)])
    steps = [
        summary_of(Parts(gaps={"total": {"tokens": 2, "k3": k3}}, worst=worst))
        for k3, worst in ((0.5, quiet), (90.0, loud))
    ]
    found = [standing for step, summary in enumerate(steps) for standing in standing_in(step, 0, summary)]
    answers = [one.answer() for one in first_of(found, "total", "k3_share")]
    assert [(a["step"], a["index"], a["by"][0]["rank"]) for a in answers] == [(1, n, n + 1) for n in range(MOST)]
    assert first_of(found)[0].standing.sequence.index == 0  # of equal |d| the first, as in one step
    assert first_of(found, "total", "log_geometric_ratio")[0].standing.sequence.index == MOST - 1
    assert [one.standing for one in first_of(found)] == [
        o.standing for o in first_of(o.standing for o in first_of(found))
    ]
