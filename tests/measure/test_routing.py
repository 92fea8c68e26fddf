"""Routing figures of a batch: by hand, against plain float64, and whatever way the batch is cut."""

from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.diagnosis import Limits, collect, diagnose
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.summary import from_bytes, merge_all, to_bytes
from offpolicy_monitor.summary.step import StepSummary

MU = [-1.0, -1.0, -1.0, -1.0]
OLD = [-1.0, -1.5, -1.0, -0.5]
#: Two layers, top 2, of four tokens: the second differs in its first layer, the last in both.
SAMPLING = [[[0, 1], [2, 3]]] * 4
CHOSEN = [[[0, 1], [2, 3]], [[0, 5], [3, 2]], [[1, 0], [2, 3]], [[6, 7], [2, 5]]]


def batch(lengths: Any = (3, 1), mask: Any = None, **columns: Any) -> RaggedBatch:
    kinds = {name: np.uint8 if name.endswith("experts") else np.float32 for name in columns}
    given = {name: np.asarray(values, kinds[name]) for name, values in columns.items()}
    inside = None if mask is None else np.asarray(mask, bool)
    return RaggedBatch.from_positions(np.asarray(lengths, np.int64), given, {}, inside)


def pair(**changes: Any) -> dict[str, Any]:
    return {
        "sampling_logprobs": MU, "old_logprobs": OLD, "sampling_experts": SAMPLING, "old_experts": CHOSEN, **changes
    }  # fmt: skip


def measured(sent: RaggedBatch) -> StepSummary:
    return Measurer("cpu").measure(sent, ())


def routing(sent: RaggedBatch) -> Any:
    return measured(sent).figures().get("routing")


def large(seed: int, layers: int = 5, k: int = 3, sequences: int = 40) -> RaggedBatch:
    """All three gaps, some tokens not finite; d^2 grows with the layers that differ."""
    source = np.random.default_rng(seed)
    lengths = source.integers(0, 30, sequences)
    tokens = int(lengths.sum())
    experts = np.argsort(source.random((3, tokens, layers, 16)), -1)[..., :k]
    kept = source.random((2, tokens, layers, 1)) < 0.7
    experts[1] = np.where(kept[0], experts[0], experts[1])
    experts[2] = np.where(kept[1], experts[1], experts[2])
    mu = -source.exponential(1.0, tokens)
    old = mu + 0.1 * np.sqrt(0.5 + (~kept[0]).sum((1, 2))) * source.standard_normal(tokens)
    current = old + 0.1 * source.standard_normal(tokens)
    old[source.random(tokens) < 0.05] = np.nan
    names = ("sampling_experts", "old_experts", "experts")
    columns = {"sampling_logprobs": mu, "old_logprobs": old, "logprobs": current}
    return batch(lengths, **columns, **dict(zip(names, experts, strict=True)))


def test_agreement_is_the_mean_share_of_experts_in_common() -> None:
    figures = routing(batch(**pair()))
    assert set(figures) == {"mismatch"}
    # shares by token and layer: (1, 1), (1/2, 1), (1, 1), (0, 1/2)
    assert figures["mismatch"]["agreement"] == 6 / 8
    assert figures["mismatch"]["by_layer"] == [2.5 / 4, 3.5 / 4]
    assert figures["mismatch"]["changed_tokens_fraction"] == 2 / 4
    assert figures["mismatch"]["changed_layers_mean"] == 3 / 4
    assert figures["mismatch"]["tokens"] == 4


def test_the_mismatch_is_split_by_whether_routing_agrees() -> None:
    figures = routing(batch(**pair(old_logprobs=[-0.9, -1.5, -1.0, -0.5])))["mismatch"]
    d = np.array([np.float32(-0.9) + 1.0, -0.5, 0.5])
    k3: list[float] = (np.expm1(d) - d).tolist()
    square: list[float] = (d**2).tolist()
    assert figures["agreeing"] == pytest.approx(
        {
            "tokens": 2, "k3": k3[0] / 2, "second_moment": square[0] / 2, "share_of_tokens": 0.5,
            "share_of_k3": k3[0] / sum(k3), "share_of_second_moment": square[0] / sum(square),
        }, rel=1e-6
    )  # fmt: skip
    assert figures["changed"] == pytest.approx(
        {
            "tokens": 2, "k3": sum(k3[1:]) / 2, "second_moment": 0.25, "share_of_tokens": 0.5,
            "share_of_k3": sum(k3[1:]) / sum(k3), "share_of_second_moment": 0.5 / sum(square),
        }, rel=1e-6
    )  # fmt: skip


def test_each_gap_compares_its_own_two_policies() -> None:
    third = [[[0, 1], [2, 3]], [[0, 5], [2, 3]], [[1, 9], [2, 3]], [[6, 7], [5, 2]]]
    figures = routing(batch(**pair(logprobs=OLD, experts=third)))
    # staleness: the third token has one expert of its first layer in common; total: all three differences
    assert {gap: found["agreement"] for gap, found in figures.items()} == {
        "mismatch": 6 / 8,
        "staleness": 7.5 / 8,
        "total": 5.5 / 8,
    }


def test_tokens_outside_the_mask_and_tokens_that_are_not_finite_do_not_count() -> None:
    masked = routing(batch(mask=[1, 1, 1, 0], **pair()))["mismatch"]
    poisoned = routing(batch(**pair(old_logprobs=[-1.0, -1.5, -1.0, np.nan])))["mismatch"]
    assert masked == poisoned
    assert (masked["tokens"], masked["agreement"], masked["by_layer"]) == (3, 1 - 0.5 / 6, [2.5 / 3, 1.0])
    assert (masked["changed"]["tokens"], masked["changed"]["share_of_second_moment"]) == (1, 1.0)


def test_a_gap_without_log_probs_is_measured_over_the_mask_and_has_no_split() -> None:
    figures = routing(batch(**pair(logprobs=OLD, experts=CHOSEN)))
    assert "agreeing" in figures["staleness"]
    alone = batch(
        sampling_logprobs=[-1.0, np.nan, -1.0, -1.0], logprobs=OLD, sampling_experts=SAMPLING, old_experts=CHOSEN
    )
    assert routing(alone) == {
        "mismatch": {
            "tokens": 4, "agreement": 6 / 8, "changed_tokens_fraction": 0.5, "changed_layers_mean": 0.75,
            "by_layer": [2.5 / 4, 3.5 / 4],
        }
    }  # fmt: skip


def test_without_two_expert_arrays_or_a_valid_token_there_is_no_routing() -> None:
    assert routing(batch(sampling_logprobs=MU, old_logprobs=OLD)) is None
    assert routing(batch(sampling_logprobs=MU, old_logprobs=OLD, old_experts=CHOSEN)) is None
    assert routing(batch(**pair(old_logprobs=[np.nan] * 4))) is None
    assert routing(batch(mask=[0] * 4, **pair())) is None


def test_equal_routing_agrees_in_full_and_leaves_nothing_to_the_changed() -> None:
    figures = routing(batch(**pair(old_experts=SAMPLING)))["mismatch"]
    assert (figures["agreement"], figures["changed_tokens_fraction"], figures["by_layer"]) == (1.0, 0.0, [1.0, 1.0])
    assert figures["agreeing"]["share_of_k3"] == 1.0
    assert (figures["changed"]["tokens"], figures["changed"]["k3"], figures["changed"]["share_of_k3"]) == (0, None, 0.0)
    assert "trend" not in figures


def test_the_trend_is_the_least_squares_line_of_the_second_moment_on_the_layers_that_differ() -> None:
    data = large(1)
    figures = routing(data)["mismatch"]
    valid = np.isfinite(data.columns["old_logprobs"])
    d = (data.columns["old_logprobs"] - data.columns["sampling_logprobs"])[valid].astype(np.float64)
    pairs = zip(data.columns["sampling_experts"][valid], data.columns["old_experts"][valid], strict=True)
    c = np.array([sum(set(x) != set(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)) for a, b in pairs])
    slope, intercept = np.polyfit(c, d**2, 1)
    steeper = np.polyfit(c, np.sqrt(np.abs(d)), 1)[0]
    assert figures["trend"] == pytest.approx(
        {
            "intercept": intercept, "slope": slope, "share": slope * c.mean() / np.mean(d**2),
            "z": steeper * np.sqrt(len(c)) * c.std() / np.sqrt(np.abs(d)).std(),
        }, rel=1e-5
    )  # fmt: skip
    assert 0.5 < figures["trend"]["share"] < 1 and figures["trend"]["z"] > 4


def test_any_cut_of_a_batch_gives_the_figures_of_the_whole() -> None:
    data = large(2, sequences=16)
    whole = routing(data)
    cut = Measurer("cpu")
    cut.block_tokens = 7
    assert_same(cut.measure(data, ()).figures()["routing"], whole)
    parts = [measured(part) for part in each_sequence(data)]
    for order in (parts, parts[::-1]):
        assert_same(merge_all(order).figures()["routing"], whole)


def each_sequence(data: RaggedBatch) -> list[RaggedBatch]:
    spans = [slice(a, b) for a, b in zip(data.offsets[:-1].tolist(), data.offsets[1:].tolist(), strict=True)]
    return [batch([s.stop - s.start], **{name: column[s] for name, column in data.columns.items()}) for s in spans]


def assert_same(left: Any, right: Any) -> None:
    assert left.keys() == right.keys()
    for gap, figures in right.items():
        counts = [name for name, value in figures.items() if not isinstance(value, dict)]
        assert [left[gap][name] for name in counts] == [figures[name] for name in counts]
        for name in ("agreeing", "changed", "trend"):
            assert left[gap][name] == pytest.approx(figures[name], rel=1e-11), (gap, name)


def test_shards_of_other_layers_and_another_k_merge_to_the_mean_over_their_tokens() -> None:
    small, deep = large(3, layers=2, k=2), large(4, layers=4, k=5)
    merged = merge_all([measured(small), measured(deep)]).figures()["routing"]["mismatch"]
    one, other = routing(small)["mismatch"], routing(deep)["mismatch"]
    cells = 2 * one["tokens"], 4 * other["tokens"]
    assert merged["agreement"] == pytest.approx(
        (cells[0] * one["agreement"] + cells[1] * other["agreement"]) / sum(cells), rel=1e-12
    )
    assert merged["by_layer"][2:] == other["by_layer"][2:]
    assert merged["by_layer"][0] == pytest.approx(
        (one["tokens"] * one["by_layer"][0] + other["tokens"] * other["by_layer"][0]) / merged["tokens"], rel=1e-12
    )


def test_what_is_stored_of_routing_is_read_back_and_small() -> None:
    data = large(5, layers=48, k=8, sequences=200)
    bare = RaggedBatch.from_positions(
        np.diff(data.offsets), {name: c for name, c in data.columns.items() if not name.endswith("experts")}, {}
    )
    with_experts, without = measured(data), measured(bare)
    assert from_bytes(to_bytes(with_experts)).figures()["routing"] == with_experts.figures()["routing"]
    assert len(to_bytes(with_experts)) - len(to_bytes(without)) < 1200


def test_routing_is_named_where_nearly_every_token_has_a_layer_that_differs() -> None:
    source = np.random.default_rng(6)
    experts = np.argsort(source.random((4000, 48, 16)), -1)[..., :4]
    changed = source.random((4000, 48)) < 0.06
    other = np.where(changed[..., None], (experts + 1) % 16, experts)
    mu = -source.exponential(1.0, 4000)
    old = mu + 0.02 * changed.sum(1) * source.standard_normal(4000)
    data = batch([100] * 40, sampling_logprobs=mu, old_logprobs=old, sampling_experts=experts, old_experts=other)
    evidence = collect([measured(data)], limits=Limits(1e-2, 1e-2))
    assert evidence["routing.mismatch.changed_tokens_fraction"] > 0.9
    assert diagnose(evidence)[0]["name"] == "routing"
