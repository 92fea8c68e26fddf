"""What Prometheus sees of a stored histogram is what the histogram itself counts at those bounds."""

from dataclasses import replace

import numpy as np
import pytest
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.exposition import native
from offpolicy_monitor.exposition.histograms import Counted, Histograms, OfShard, exposed
from offpolicy_monitor.families import ABSOLUTE, RUN_HISTOGRAMS, SIGNED, Family
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.vocabulary import LOGPROBS

from tests.fixtures.shards import make_summary


def exposed_by(*summaries: StepSummary) -> Histograms:
    return exposed([*map(OfShard.of, summaries)])


def test_exposed_counts_are_those_of_the_values() -> None:
    source = np.random.default_rng(7)
    tokens = 5000
    old = -source.exponential(1.0, tokens).astype(np.float32)
    new = (old + source.standard_normal(tokens) * 10.0 ** source.uniform(-6, 1, tokens)).astype(np.float32)
    lengths = np.full(50, 100, np.int64)
    batch = RaggedBatch.from_positions(lengths, {"old_logprobs": old, "logprobs": new}, {})

    found = exposed_by(Measurer("cpu").measure(batch, PRESETS))["staleness"].families

    gap = (new - old).astype(np.float32)
    assert found["token_log_ratio_nats"].cumulative.tolist() == [
        *(int((gap <= np.float32(bound)).sum()) for bound in SIGNED),
        tokens,
    ]
    assert found["token_log_ratio_abs_nats"].cumulative.tolist() == [
        *(int(((gap <= np.float32(bound)) & (gap > np.float32(-bound))).sum()) for bound in ABSOLUTE),
        tokens,
    ]
    assert found["sequence_log_geometric_ratio_nats"].total == 50
    sums = [found[name].sum for name in ("token_log_ratio_nats", "token_log_ratio_abs_nats")]
    assert sums == pytest.approx([gap.astype(float).sum(), np.abs(gap).astype(float).sum()], rel=1e-6)


def test_what_two_shards_counted_is_what_both_together_count() -> None:
    one, other = make_summary(1), make_summary(7)
    [gap] = one.gaps
    merged, apart = exposed_by(one.merge(other))[gap], exposed_by(one)[gap].plus(exposed_by(other)[gap])
    for (name, counted), at_once in zip(
        apart.families.items(), exposed_by(one, other)[gap].families.values(), strict=True
    ):
        for together in (merged.families[name], at_once):
            assert counted.cumulative.tolist() == together.cumulative.tolist()
            assert counted.buckets.tolist() == together.buckets.tolist()
            assert counted.sum == pytest.approx(together.sum)
        assert counted.buckets.sum() == counted.total == 200 or name.startswith("sequence")


def test_native_buckets_are_those_of_every_bin() -> None:
    summary = make_summary(3)
    [gap] = summary.gaps
    whole = native.bucketed(summary.gaps[gap].histogram("log_ratio").counts)
    assert exposed_by(summary)[gap].families["token_log_ratio_nats"].buckets.tolist() == whole.tolist()


@pytest.mark.parametrize("family", RUN_HISTOGRAMS, ids=lambda family: family.name)
def test_counts_at_the_thresholds_are_those_at_the_same_bounds_among_all(family: Family) -> None:
    counted = replace(Counted.nothing(family), cumulative=np.arange(len(family.all_bounds) + 1))
    chosen = dict(zip((*family.all_bounds, np.inf), range(len(family.all_bounds) + 1), strict=True))
    assert counted.at(family, family.bounds) == [chosen[bound] for bound in (*family.bounds, np.inf)]
    assert counted.at(family, family.all_bounds) == list(chosen.values())


def test_each_gap_has_what_its_own_histograms_count() -> None:
    source = np.random.default_rng(8)
    columns = {name: -source.exponential(1.0, 60).astype(np.float32) for name in LOGPROBS}
    columns["logprobs"][7] = np.nan
    signs = np.array([-1.0, 0.0, 1.0], np.float32)
    batch = RaggedBatch.from_positions(np.full(3, 20, np.int64), columns, {"advantages": signs})
    summary = Measurer("cpu").measure(batch, PRESETS)
    found = exposed_by(summary)
    assert found.keys() == summary.gaps.keys() and len(found) == 3
    for gap, of_gap in summary.gaps.items():
        families = found[gap].families
        for name, quantity in (
            ("token_log_ratio_nats", "log_ratio"),
            ("sequence_log_geometric_ratio_nats", "log_geometric_ratio"),
        ):
            counts = of_gap.histogram(quantity).counts
            assert families[name].buckets.tolist() == native.bucketed(counts).tolist(), (gap, name)


def test_a_summary_without_a_gap_shows_nothing() -> None:
    assert exposed_by(StepSummary()) == {}
