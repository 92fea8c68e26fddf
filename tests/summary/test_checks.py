"""Every summary that measuring makes passes the checks; one that was changed passes only where it still is one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.summary import StepSummary, packing, to_bytes
from offpolicy_monitor.summary.checks import InvalidSummaryError, Shard, check_figures, checked

from tests import strategies
from tests.summary.full import FULL, OTHER, SHARD, measured

MOST = 4096


def unpacked(summary: StepSummary) -> tuple[dict[str, Any], dict[str, Any]]:
    return packing.read(packing.inflated(to_bytes(summary)[1:]))


@settings(max_examples=150, deadline=None)
@given(strategies.sequences())
def test_what_measuring_makes_passes(sent: list[Any]) -> None:
    summary = measured(strategies.packed(sent))
    assert checked(*unpacked(summary), SHARD, MOST) == summary


def test_a_summary_with_every_array_passes_and_keeps_every_bit() -> None:
    found = checked(*unpacked(FULL), SHARD, MOST)
    assert found == FULL
    check_figures(found)


def test_a_summary_of_a_release_that_kept_no_deviation_passes() -> None:
    tree, texts = unpacked(FULL)
    for gap in tree["gaps"].values():
        del gap["sums"]["log_ratio_deviation"]
    found = checked(tree, texts, SHARD, MOST)
    assert found.figures()["gaps"]["total"]["log_ratio_std"] == pytest.approx(
        FULL.figures()["gaps"]["total"]["log_ratio_std"], rel=1e-6
    )


def test_a_batch_without_sequences_or_without_tokens_passes() -> None:
    for lengths in ([], [0, 0]):
        empty = np.zeros(0, np.float32)
        batch = RaggedBatch.from_positions(np.array(lengths, np.int64), {"old_logprobs": empty, "logprobs": empty}, {})
        summary = measured(batch)
        assert checked(*unpacked(summary), SHARD, MOST) == summary


def put(path: str, value: Any) -> Any:
    def change(tree: dict[str, Any], texts: dict[str, Any]) -> None:
        *parts, last = path.split(">")
        node: Any = tree
        for part in parts:
            node = node[part]
        if value is None:
            del node[last]
        else:
            node[last] = value(node[last]) if callable(value) else value

    return change


#: What is changed, and the path of the refusal.
REFUSED = [
    (put("batch>tokens", 1), "batch.exact_zero_tokens"),
    (put("batch>tokens", -1), "batch.tokens"),
    (put("batch>tokens", 2.0), "batch.tokens"),
    (put("batch>sequences", 10**17), "batch.sequences"),
    (put("batch>empty_sequences", 99), "batch.empty_sequences"),
    (put("batch>zero_filled_tokens", 9999), "batch.zero_filled_tokens"),
    (put("batch>lag", None), "batch"),
    (put("batch>reward", float("nan")), "batch.reward"),
    (put("batch>positive_tokens", None), "batch.positive_tokens"),
    (put("gaps>total>sums>k3", None), "gaps.total.sums.k3"),
    (put("gaps>total>sums>k3", -1.0), "gaps.total.sums.k3"),
    (put("gaps>total>sums>k3", float("inf")), "gaps.total.sums.k3"),
    (put("gaps>total>sums>js", 1e200), "gaps.total.sums.js"),
    (put("gaps>total>sums>log_ratio_deviation", lambda sum: 1.01 * sum), "gaps.total.sums.log_ratio_deviation"),
    (put("gaps>total>sums>log_ratio_deviation", 0.0), "gaps.total.sums.log_ratio_deviation"),
    (put("gaps>total>sums>log_ratio_deviation", -1.0), "gaps.total.sums.log_ratio_deviation"),
    (put("gaps>total>sums>tail_tokens", 10**6), "gaps.total.sums.tail_tokens"),
    (put("gaps>total>sums>log_ratio_min", 50.0), "gaps.total.sums.log_ratio"),
    (put("gaps>total>sums>log_ratio_square", 0.0), "gaps.total.sums.log_ratio_square"),
    (put("gaps>total>sums>log_geometric_abs", 0.0), "gaps.total.sums.log_geometric"),
    (put("gaps>total>histograms>log_ratio/positive", None), "gaps.total.histograms.log_ratio"),
    (put("gaps>total>histograms>log_ratio/positive", [1]), "gaps.total.histograms.log_ratio/positive"),
    (put("gaps>total>histograms>log_ratio/positive", [0, 1, -1]), "gaps.total.histograms.log_ratio/positive"),
    (put("gaps>total>histograms>log_ratio/positive", [9000, 1, 1]), "gaps.total.histograms.log_ratio/positive"),
    (put("gaps>staleness", None), "gaps"),
    (put("cross>tokens", 10**6), "cross.tokens"),
    (put("cross>mismatch_staleness", 1e9), "cross.mismatch_staleness"),
    (put("methods>opsm>masked_tokens", 10**6), "methods.opsm.masked_tokens"),
    (put("methods>opsm>tokens", 599), "methods.opsm.tokens"),
    (put("methods>opsm>k3_kept", None), "methods.opsm"),
    (put("methods>tis_token>weight", None), "methods.tis_token"),
    (put("methods>opsm>masked_advantage_mass", 1e9), "methods.opsm.masked_advantage_mass"),
    (put("methods>opsm", None), "methods"),
    (put("tables>breakdown/position/first/total>tokens", 10**6), "tables.breakdown/position/first/total.tokens"),
    (put("tables>breakdown/position/first/total>k3", float("nan")), "tables.breakdown/position/first/total.k3"),
    (put("tables>versions/lag", None), "tables.versions/spans"),
    (put("tables>versions/spans>lag", float("nan")), "tables.versions/spans.lag"),
    (put("tables>sequence/total", None), "tables.sequence/total"),
    (put("tables>sequence/total>cancelled", 1e6), "tables.sequence/total.cancelled"),
    (put("tables>gradient/total", None), "tables.advantage/total"),
    (put("tables>gradient/total", {"99999": 1}), "tables.gradient/total.99999"),
    (put("tables>length/total/tokens", {"0": 1}), "tables.length/total/tokens"),
    (put("tables>signature/neighbours>pairs", 0), "tables.signature/neighbours.pairs"),
    (put("tables>signature/middle>exact", 10**6), "tables.signature/middle.exact"),
    (put("tables>anchor/opsm>differing", 10**6), "tables.anchor/opsm.differing"),
    (put("tables>routing/total/counts/4/2>changed_layers", 10**9), "tables.routing/total/counts/4/2.changed_layers"),
    (put("tables>routing/total/counts/4/2", None), "tables.routing/total/missing/4/2"),
    (put("tables>whatif/total/log_ratio/tokens", {"0": 1}), "tables.whatif/total/log_ratio/tokens"),
    (put("tables>whatif/total/log_ratio/tokens", {"-1": 1}), "tables.whatif/total/log_ratio/tokens.-1"),
    (put("tables>whatif/total/log_ratio/mass", {"0": float("nan")}), "tables.whatif/total/log_ratio/mass.0"),
    (put("tables>masked/opsm/total/sequences", {"0": 1}), "tables.masked/opsm/total/sequences"),
    (put("worst>index", lambda found: [10**6, *found[1:]]), "worst.1000000"),
    (put("worst>shard", lambda found: [4] * len(found)), None),
    (put("worst>positions>number", lambda found: found[1:]), "worst.positions.number"),
    (put("worst>gaps>total>k3_sum>0", float("nan")), None),
    (put("worst", {"index": list(range(46))}), "worst"),
]


@pytest.mark.parametrize(("change", "path"), REFUSED)
def test_a_summary_that_no_batch_has_is_refused_by_the_part_at_fault(change: Any, path: str | None) -> None:
    tree, texts = unpacked(FULL)
    change(tree, texts)
    with pytest.raises(InvalidSummaryError) as caught:
        checked(tree, texts, SHARD, MOST)
    assert path is None or caught.value.path == path


@pytest.mark.parametrize(
    "name",
    ["shoes", "shoes/total", "breakdown/position/9/total", "breakdown/label:gpu/x/total", "breakdown/shard/4/total",
     "whatif/total/shoes/tokens", "whatif/total/log_ratio/sequences", "anchor/shoes", "masked/shoes/total/tokens",
     "routing/total/counts/5/2", "routing/shoes/counts/4/2", "signature/grid/new", "length/total/shoes", "sequence/x"],
)  # fmt: skip
def test_a_table_of_another_name_is_refused(name: str) -> None:
    tree, texts = unpacked(FULL)
    tree["tables"][name] = {"tokens": 1}
    with pytest.raises(InvalidSummaryError) as caught:
        checked(tree, texts, SHARD, MOST)
    assert caught.value.path.startswith("tables.")


def test_the_shard_beside_a_summary_must_be_its_own() -> None:
    others = {
        "number": 4, "labels": {}, "policy_version": None, "keep_worst": 1, "sequence_ids": ("x",) * 7, "longest_id": 1,
    }  # fmt: skip
    for name, other in others.items():
        shard = Shard(**{**{key: getattr(SHARD, key) for key in Shard.__dataclass_fields__}, name: other})
        with pytest.raises(InvalidSummaryError):
            checked(*unpacked(FULL), shard, MOST)


def test_more_tables_than_allowed_are_refused() -> None:
    with pytest.raises(InvalidSummaryError, match="over the limit of 10"):
        checked(*unpacked(FULL), SHARD, 10)


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Any:
    """The paths of all parts of a tree."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from leaves(child, (*path, key))


PATHS = list(leaves(unpacked(FULL)[0]))[1:]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [0, 1, -1, 2**62, 10**30, 0.0, -0.0, 1.5, -1.5, 5e-324, 1e-300, 1e99, -1e99, 1e149, -1e149, 1e289, 1e308,
     float("nan"), float("inf"), "x", [], {}, [1], None]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), ODD), min_size=1, max_size=4))
def test_whatever_is_changed_the_summary_is_refused_or_answers_figures(changes: list[Any]) -> None:
    tree, texts = unpacked(FULL)
    for path, value in changes:
        node: Any = tree
        try:
            for part in path[:-1]:
                node = node[part]
            node[path[-1]] = value
        except (TypeError, LookupError):
            continue
    try:
        summary = checked(tree, texts, SHARD, MOST)
        check_figures(summary)
    except InvalidSummaryError:
        return
    merged = summary.merge(OTHER).merge(summary)
    to_bytes(merged)
    merged.step_figures()
    for _ in range(16):
        merged = merged.merge(merged)
    to_bytes(merged)
    merged.step_figures()
