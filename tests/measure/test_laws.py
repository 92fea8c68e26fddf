"""What must not change a figure: the size of blocks, holes against packed tokens, how a batch is dealt to shards."""

import json
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.methods.curve import SECOND_MOMENT
from offpolicy_monitor.summary import StepSummary, merge_all, to_bytes
from offpolicy_monitor.summary.tables.worst import Worst

from tests.measure.rows import ROWS
from tests.reference import COLUMNS, Sequence, attribution
from tests.strategies import packed, random_sequences, sequences, without_holes

#: Rows whose rule looks at one sequence at a time: others cut among all tokens of a request.
SPLITTABLE = [
    row
    for row in ROWS
    if not any(curve.scale is SECOND_MOMENT for form in row.method.forms.values() for curve in form.curves.values())
]


def assert_nearly_equal(left: Any, right: Any, path: str = "") -> None:
    """Equal shape, counts and absences exactly, floats to 1e-9 of a scale of one."""
    if isinstance(left, dict):
        assert left.keys() == right.keys(), path
        for key in left:
            assert_nearly_equal(left[key], right[key], f"{path}.{key}")
    elif isinstance(left, float) and isinstance(right, float):
        assert left == pytest.approx(right, rel=1e-9, abs=1e-9), path
    else:
        assert left == right, path


@settings(max_examples=60)
@given(sent=sequences(), block_tokens=st.integers(1, 20))
def test_block_size_does_not_matter(sent: list[Sequence], block_tokens: int) -> None:
    whole, cut = Measurer("cpu"), Measurer("cpu")
    cut.block_tokens = block_tokens
    left, right = (measurer.evaluate(packed(sent), ROWS, "token") for measurer in (whole, cut))
    for one, other in zip(left.pop("methods"), right.pop("methods"), strict=True):
        assert_nearly_equal(one, other)
    assert left.pop("per_sequence") == right.pop("per_sequence")
    assert_nearly_equal(left, right)


@settings(max_examples=60)
@given(sent=sequences())
def test_positions_outside_the_mask_do_not_matter(sent: list[Sequence]) -> None:
    measurer = Measurer("cpu")
    holed, tight = (measurer.measure(packed(s), PRESETS) for s in (sent, without_holes(sent)))
    assert replace(holed, worst=Worst()) == replace(tight, worst=Worst())
    assert np.array_equal(holed.worst.sequences.gaps, tight.worst.sequences.gaps, equal_nan=True)  # at other positions


@settings(max_examples=60)
@given(sent=sequences(), data=st.data())
def test_any_deal_of_sequences_to_shards_merges_to_the_whole(sent: list[Sequence], data: st.DataObject) -> None:
    shards = data.draw(st.integers(1, 4))
    owner = data.draw(st.lists(st.integers(0, shards - 1), min_size=len(sent), max_size=len(sent)))
    names = data.draw(st.permutations(range(shards)))
    measurer = Measurer("cpu")
    dealt = [[s for s, own in zip(sent, owner, strict=True) if own == name] for name in names]
    parts = [measurer.measure(packed(shard), SPLITTABLE) for shard in dealt if shard]
    whole, merged = measurer.measure(packed(sent), SPLITTABLE), merge_all(parts)
    if parts:
        assert_same_summary(merged, whole)


def assert_same_summary(left: StepSummary, right: StepSummary) -> None:
    """Counts and histograms exactly; sums to 1e-12 of the sum of absolute terms, which |d| and squares stand for."""
    assert left.batch == right.batch
    for name, gap in right.gaps.items():
        assert all((left.gaps[name].histograms[key] == counts).all() for key, counts in gap.histograms.items())
        assert_same_sums(left.gaps[name].sums, gap.sums)
    for name, method in right.methods.items():
        assert left.methods[name].spec == method.spec
        assert_same_sums(left.methods[name].sums, method.sums)
    assert_same_sums(left.cross, right.cross)


def assert_same_sums(left: Any, right: Any) -> None:
    assert left.keys() == right.keys()
    size = max((abs(value) for value in right.values()), default=0)
    for name, value in right.items():
        if isinstance(value, int):
            assert left[name] == value, name
        else:
            assert abs(left[name] - value) <= 1e-12 * max(size, abs(value)), name


@settings(max_examples=60)
@given(sent=sequences(odd=False))
def test_attribution_shares_sum_to_one(sent: list[Sequence]) -> None:
    shares = Measurer("cpu").evaluate(packed(sent), [])["attribution"]
    expected = attribution(sent) if sent and len(sent[0].logprobs) == 3 else None
    assert (shares is None) == (expected is None)
    if shares is not None and expected is not None:
        size = max(abs(share) for share in expected.values())
        assert sum(shares.values()) == pytest.approx(1.0, abs=1e-12 * size)
        assert shares == pytest.approx(expected, abs=1e-5 * size**2)


def test_attribution_of_a_known_split() -> None:
    sent = [
        Sequence({"sampling_logprobs": [-3.0, -3.0], "old_logprobs": [-2.0, -2.0], "logprobs": [-1.5, -2.5]}, [1, 1])
    ]
    shares = Measurer("cpu").evaluate(packed(sent), [])["attribution"]
    # m = 1, 1; s = 0.5, -0.5: E[m^2] = 1, E[s^2] = 0.25, E[m s] = 0, E[total^2] = 1.25
    assert shares == {"mismatch": 0.8, "staleness": 0.2, "interaction": 0.0}


def test_attribution_is_absent_where_nothing_is_off_policy() -> None:
    sent = [Sequence({name: [-1.0, -2.0] for name in COLUMNS}, [1, 1])]
    assert Measurer("cpu").evaluate(packed(sent), [])["attribution"] is None


@pytest.mark.parametrize("advantages", [None, "sequence", "token"])
def test_a_batch_without_sequences_has_counts_of_zero_and_no_figure(advantages: str | None) -> None:
    none = {name: np.zeros(0, np.float32) for name in COLUMNS}
    own = {} if advantages is None else {"advantages": np.zeros(0, np.float32)}
    per_token, per_sequence = ({**none, **own}, {}) if advantages == "token" else (none, own)
    batch = RaggedBatch.from_positions(np.zeros(0, np.int64), per_token, per_sequence)
    answer = Measurer("cpu").evaluate(batch, detail="token")
    assert (answer["tokens"], answer["sequences"], answer["empty_sequences"]) == (0, 0, 0)
    assert answer["excluded_tokens"] == {"nonfinite": 0}
    assert answer["suspect_tokens"] == {"positive": 0, "exact_zero": 0}
    assert {gap["tokens"] for gap in answer["gaps"].values()} == {0}
    assert all("k1" not in gap for gap in answer["gaps"].values())
    assert answer["per_sequence"] == []
    assert all(method["keep_tokens"] == [] for method in answer["methods"])
    assert len(answer["methods"]) == (29 if advantages else 20)


def test_a_batch_that_is_all_masked_has_counts_of_zero_and_no_figure() -> None:
    sent = [Sequence({name: [-1.0, float("nan")] for name in COLUMNS}, [0, 0], 1.0)] * 3
    answer = Measurer("cpu").evaluate(packed(sent), detail="token")
    assert (answer["tokens"], answer["sequences"], answer["empty_sequences"]) == (0, 3, 3)
    for method in answer["methods"]:
        assert (method["tokens"], method["masked_tokens"], method["masked_sequences"]) == (0, 0, 0)
        assert method.get("masked_token_fraction") is None
        assert method["keep_tokens"] == [[0, 0]] * 3
        assert method["keep_sequences"] == [0, 0, 0]


def test_equal_policies_are_exactly_on_policy() -> None:
    sent = [Sequence({name: [-0.1, -2.0, -30.0] for name in COLUMNS}, [1, 1, 1], -1.0)] * 2
    answer = Measurer("cpu").evaluate(packed(sent))
    for figures in answer["gaps"].values():
        assert figures["exact_fraction"] == 1.0
        for name in ("k1", "k2", "k3", "k3_reverse", "js", "log_ratio_std", "chi2", "probability_diff_max"):
            assert figures[name] == 0.0, name
        assert figures["ratio_mean"] == figures["ess"] == figures["sequence"]["ess"] == 1.0
    assert {method["masked_tokens"] for method in answer["methods"]} == {0}


def test_a_summary_does_not_depend_on_the_order_of_equal_shards() -> None:
    batch = packed(random_sequences(1, [10, 20, 30], 0.1))
    measurer = Measurer("cpu")
    assert to_bytes(measurer.measure(batch, PRESETS)) == to_bytes(measurer.measure(batch, PRESETS))


def test_tables_of_what_if_come_in_one_order() -> None:
    """No set may tell it: a process iterates over one in an order of its own, and schemes must be equal in all."""
    keys = Measurer("cpu").measure(packed(random_sequences(3, [10, 20], 0.1)), PRESETS).arrays.scheme.keys
    order = ("sequences", "tokens", "lengths", "mass")
    of_scores = groupby((key.split("/") for key in keys if key.startswith("whatif/")), key=lambda parts: parts[1:3])
    found = [[order.index(parts[3]) for parts in of_score] for _, of_score in of_scores]
    assert len(found) > 10
    assert all(indices == sorted(indices) for indices in found)


def test_figures_survive_json() -> None:
    figures = Measurer("cpu").evaluate(packed(random_sequences(1, [10], 0.1)), detail="sequence")
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
