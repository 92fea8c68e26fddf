"""Worst as it is stored and as it is answered: bit for bit back, small, and with shares of the step's own total."""

from collections.abc import Sequence
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
from offpolicy_monitor.summary.tables.worst import (
    COLUMNS,
    GAPS,
    LARGEST,
    MOST,
    NO_SEQUENCES,
    RANKINGS,
    By,
    Column,
    OfStep,
    Sequences,
    Worst,
    first_of,
    still_first,
)

from tests.summary.worst_one_by_one import (
    Columns,
    Figures,
    One,
    Position,
    in_columns,
    one_by_one,
    worst,
    worst_of,
)

SINGLES = st.floats(-LARGEST, LARGEST, width=32)
COUNTS = st.integers(0, 2**40)
TOKENS = st.integers(1, 2**40)
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
def sequences(draw: st.DrawFn, among: st.SearchStrategy[list[Position]]) -> One:
    """Any sequence, whose positions are some of `among`."""
    positions = tuple(draw(among))
    gaps = {gap: Figures(draw(TOKENS), draw(SINGLES), draw(SINGLES)) for gap in draw(SOME_GAPS)}
    columns = None
    if (ranks := draw(RANKS)) is not None:
        tokens = tuple(draw(among))
        beside = {name: draw(numbers(whole, len(tokens))) for name, whole in draw(SENT)}
        columns = Columns(ranks, tokens, beside)
    return One(draw(COUNTS), draw(COUNTS), draw(COUNTS), gaps, positions, draw(IDS), columns)


@st.composite
def several(draw: st.DrawFn) -> list[One]:
    """Sequences whose positions are some of a few, since each takes as long to draw as all else of a sequence."""
    among = st.lists(st.sampled_from(draw(POSITIONS)), max_size=3)
    return worst_of(draw(st.lists(sequences(among), max_size=6)))


SEVERAL = several()


@given(st.lists(SEVERAL, max_size=4))
def test_shards_merged_as_columns_are_those_that_a_loop_over_their_sequences_finds(parts: list[list[One]]) -> None:
    stored = [from_bytes(to_bytes(StepSummary(worst=worst(*part)))).worst for part in parts]

    whole = reduce(Worst.merge, stored, Worst())

    expected = [one for part in parts for one in part]
    if len([part for part in parts if part]) != 1:
        expected = worst_of(expected)
    assert one_by_one(whole) == expected


@given(SEVERAL)
def test_the_worst_are_read_back_bit_for_bit(found: list[One]) -> None:
    summary = StepSummary(worst=worst(*found))
    stored = to_bytes(summary)
    assert from_bytes(stored) == summary
    assert one_by_one(from_bytes(stored).worst) == found
    assert to_bytes(from_bytes(stored)) == stored


@given(SEVERAL, SEVERAL, SEVERAL)
def test_merging_is_commutative_and_associative_and_empty_is_its_identity(
    a: list[One], b: list[One], c: list[One]
) -> None:
    left, middle, right = (
        worst(*(replace(one, shard=3 * one.shard + n) for one in part)) for n, part in enumerate((a, b, c))
    )
    assert left.merge(middle) == middle.merge(left)
    assert left.merge(middle).merge(right) == left.merge(middle.merge(right))
    assert left.merge(Worst()) == left == Worst().merge(left) == left.merge(left)


@given(SEVERAL, st.randoms())
def test_chosen_sequences_go_with_all_that_is_kept_of_them(found: list[One], random: Any) -> None:
    rows = random.sample(range(len(found)), random.randint(0, len(found)))
    assert one_by_one(in_columns(found).of(np.array(rows, np.int64))) == [found[row] for row in rows]


def forged(found: Sequences, **changes: Any) -> Sequence[np.ndarray]:
    """The columns of COLUMNS, some of them changed."""
    columns = dict(zip((column.name for column in COLUMNS), found.columns, strict=False))
    return list((columns | {name: change(columns[name]) for name, change in changes.items()}).values())


@pytest.mark.parametrize("name", [column.name for column in COLUMNS])
def test_columns_that_do_not_fit_each_other_are_none(name: str) -> None:
    tokens = (Position(0, (-1.0, None, -0.5)), Position(3, (-1.0, None, -3.0)))
    beside = {"advantages": (0.5, 1.0), "policy_versions": 3, "rewards": 1.0}
    kept = One(0, 2, 5, {"total": Figures(4, -0.5, 3.0)}, tokens, "p0", Columns(1, tokens, beside))
    found = in_columns([kept, replace(kept, index=3, id=None)])
    assert Sequences.of_columns(forged(found), found.ids or []) == found
    for change in (lambda column: column[:-1], lambda column: np.concatenate([column, column[:1]])):
        with pytest.raises(ValueError, match=r"the worst sequences|raw tokens"):
            Sequences.of_columns(forged(found, **{name: change}), found.ids or [])


def test_raw_tokens_of_no_sequence_or_twice_of_one_are_refused() -> None:
    tokens = (Position(0, (-1.0, None, -0.5)),)
    found = in_columns(
        [One(0, n, 5, {"total": Figures(4, -0.5, 3.0)}, tokens, None, Columns(1, tokens)) for n in (0, 1)]
    )
    for rows in ([0, 0], [0, 2]):
        with pytest.raises(ValueError, match="raw tokens"):
            Sequences.of_columns(forged(found, kept=lambda kept, rows=rows: np.column_stack([rows, kept[:, 1]])), [])
    with pytest.raises(ValueError, match="8 columns"):
        Sequences.of_columns(forged(found)[:8], [])


@pytest.mark.parametrize("ids", [{"a": 0, "b": 1}, "ab", None, 2])
def test_ids_that_are_no_list_are_refused(ids: Any) -> None:
    found = in_columns([One(0, n, 5, {"total": Figures(4, -0.5, 3.0)}) for n in (0, 1)])
    with pytest.raises(ValueError, match="with ids"):
        Sequences.of_columns(found.columns, ids)


@pytest.mark.parametrize("column", COLUMNS, ids=[column.name for column in COLUMNS])
def test_numbers_of_another_kind_than_their_column_s_are_refused(column: Column) -> None:
    tokens = (Position(0, (-1.0, None, -0.5)), Position(3, (-1.0, None, -3.0)))
    beside = {"advantages": (0.5, 1.0), "policy_versions": 3, "rewards": 1.0}
    found = in_columns([One(0, 2, 5, {"total": Figures(4, -0.5, 3.0)}, tokens, "p0", Columns(1, tokens, beside))])
    wrong = [lambda v: v - 9, lambda v: v.astype(np.float64)] if column.is_whole else []
    for change in (*wrong, lambda v: np.full(v.shape, 2**64 - 1, np.uint64)):
        with pytest.raises(ValueError, match=column.name):
            Sequences.of_columns(forged(found, **{column.name: change}), ["p0"])


def batch(sequences: int, ids: bool) -> RaggedBatch:
    """2,000 tokens per sequence, whose log-probs have every bit of a float32."""
    source = np.random.default_rng(3)
    lengths = source.integers(1000, 3000, sequences)
    sampling = -source.standard_exponential(int(lengths.sum()), np.float32)
    columns: dict[str, Any] = {"sampling_logprobs": sampling}
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


def test_a_summary_without_worst_sequences_stores_none() -> None:
    assert Worst().sequences == NO_SEQUENCES == Worst.of(NO_SEQUENCES).sequences
    assert len(from_bytes(to_bytes(StepSummary())).worst.sequences) == 0


def answers(summary: StepSummary, gap: str | None, by: By | None, limit: int) -> list[dict[str, Any]]:
    """The answer of one gradient step."""
    return [one.answer() for one in first_of([OfStep.of(4, 1, summary)], gap, by)][:limit]


def test_a_step_answers_each_sequence_once_with_its_ranks_and_its_share_of_the_step() -> None:
    far, near = {"total": Figures(4, -0.5, 3.0)}, {"total": Figures(2, 0.75, 1.0)}
    positions = (Position(1, (-1.0, None, -0.5)), Position(7, (-1.0, None, -3.0)))
    closest = (Position(0, (-1.0, None, -0.5)),)
    found = worst(One(0, 2, 5, far, positions, "p0"), One(1, 0, 2, near, closest))
    summary = summary_of(Parts(gaps={"total": {"tokens": 6, "k3": 8.0}}, worst=found))
    first, second = answers(summary, None, None, 10)
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
    assert [s["index"] for s in answers(summary, "total", "log_geometric_ratio", 10)] == [0, 2]
    assert [s["index"] for s in answers(summary, None, None, 1)] == [2]
    assert answers(summary, "mismatch", None, 10) == []


def logprobs(*values: float | None) -> dict[str, Any]:
    return dict(zip(("sampling_logprobs", "old_logprobs", "logprobs"), values, strict=True))


def test_raw_tokens_are_answered_as_columns_of_what_was_sent() -> None:
    tokens = (Position(3, (-1.0, None, -2.0)), Position(5, (None, None, -1.0)))
    sequence = One(0, 0, 2, {"total": Figures(1, -1.0, 0.4)}, tokens[:1], None, Columns(1, tokens))
    [answer] = answers(StepSummary(worst=worst(sequence)), None, None, 1)
    assert answer["columns"] == {"position": [3, 5], "sampling_logprobs": [-1.0, None], "logprobs": [-2.0, -1.0]}
    assert answer["gaps"]["total"]["k3_share"] is None


def test_what_was_sent_of_a_sequence_or_of_its_tokens_is_answered_beside_their_log_probs() -> None:
    tokens = (Position(3, (-1.0, None, -2.0)), Position(5, (None, None, -1.0)))
    beside: dict[str, Any] = {"advantages": (0.5, -1.5), "policy_versions": (7, -1), "rewards": 2.0}
    sequence = One(0, 0, 2, {"total": Figures(1, -1.0, 0.4)}, tokens[:1], None, Columns(1, tokens, beside))
    stored = from_bytes(to_bytes(StepSummary(worst=worst(sequence))))
    [answer] = answers(stored, None, None, 1)
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
    sequence = One(0, 0, 2, {"total": Figures(1, -1.0, 0.4)}, tokens, None, Columns(1, tokens))
    assert len(in_columns([sequence]).columns) == 9
    further = in_columns([replace(sequence, columns=Columns(1, tokens, {"rewards": 1.0}))]).columns
    assert [column.tolist() for column in further[9:]] == [[0], [], [0], [], [1], [1.0]]


def test_every_gap_is_ranked_by_every_figure() -> None:
    assert len(RANKINGS) == 9


def of_steps(*steps: tuple[float, Worst]) -> list[OfStep]:
    """Steps of so much k3, and their worst sequences."""
    gaps = [{"total": {"tokens": 2, "k3": k3}} for k3, _ in steps]
    summaries = [summary_of(Parts(gaps=own, worst=found)) for own, (_, found) in zip(gaps, steps, strict=True)]
    return [OfStep.of(step, 0, summary) for step, summary in enumerate(summaries)]


def test_sequences_of_several_steps_are_ranked_against_each_other_by_what_they_are_and_not_by_their_share() -> None:
    small, large = (Position(0, (-1.0, None, -0.9)),), (Position(0, (-1.0, None, 0.0)),)
    quiet = worst(One(0, 0, 2, {"total": Figures(2, 0.1, 0.5)}, small))
    loud = worst(*(One(0, n, 2, {"total": Figures(2, 0.5 + n, 2.0)}, large) for n in range(MOST)))
    found = of_steps((0.5, quiet), (90.0, loud))
    told = [one.answer() for one in first_of(found, "total", "k3_share")]
    assert [(a["step"], a["index"], a["by"][0]["rank"]) for a in told] == [(1, n, n + 1) for n in range(MOST)]
    assert first_of(found)[0].answer()["index"] == 0  # of equal |d| the first, as in one step
    assert first_of(found, "total", "log_geometric_ratio")[0].answer()["index"] == MOST - 1
    still = still_first(found)
    assert [of_step.step for of_step in still] == [1]
    assert [one.answer() for one in first_of(still)] == [one.answer() for one in first_of(found)]
    assert first_of([]) == still_first([]) == []


@given(st.lists(SEVERAL, max_size=4), st.sampled_from([None, *GAPS]))
def test_those_that_are_still_first_are_ranked_as_all_are(parts: list[list[One]], gap: str | None) -> None:
    found = of_steps(*((1.0, worst(*part)) for part in parts))
    still = still_first(found, gap)
    assert [one.answer() for one in first_of(still, gap)] == [one.answer() for one in first_of(found, gap)]
    assert sum(len(of_step.sequences) for of_step in still) == len(first_of(found, gap))
