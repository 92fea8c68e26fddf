"""Breakdowns and version spans against loops over tokens, on ragged batches with holes and non-finite log-probs."""

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.summary.attribution import attribution
from offpolicy_monitor.summary.step import StepSummary

from tests.summary.records import records_of

GAPS = {
    "mismatch": ("old_logprobs", "sampling_logprobs"),
    "staleness": ("logprobs", "old_logprobs"),
    "total": ("logprobs", "sampling_logprobs"),
}
VERSION = 9
EDGES = [(0.0, "0"), (1e-4, "1e-4"), (1e-3, "1e-3"), (0.01, "1e-2"), (0.1, "1e-1"), (0.5, "5e-1"), (0.9, "9e-1")]
EDGES.append((0.99, "99e-2"))


def batch(seed: int, per_token: bool, sequences: int = 40) -> RaggedBatch:
    """Lengths 0..70, one masked position in five, a few non-finite log-probs, versions from before and after."""
    source = np.random.default_rng(seed)
    lengths = source.integers(0, 70, sequences)
    tokens = int(lengths.sum())
    columns: dict[str, Any] = {"sampling_logprobs": -source.exponential(1.5, tokens).astype(np.float32)}
    columns["old_logprobs"] = columns["sampling_logprobs"] + source.normal(0, 0.05, tokens).astype(np.float32)
    columns["logprobs"] = columns["old_logprobs"] + source.normal(0, 0.1, tokens).astype(np.float32)
    for name in tuple(columns):
        columns[name][source.integers(0, tokens, 5)] = np.nan
    columns["turns"] = source.integers(-1, 20, tokens)
    per_sequence: dict[str, Any] = {}
    size, where = (tokens, columns) if per_token else (sequences, per_sequence)
    where["policy_versions"] = source.integers(-1, 12, size)
    where["advantages"] = source.integers(-1, 2, size).astype(np.float32)
    mask = source.random(tokens) > 0.2
    return RaggedBatch.from_positions(lengths, columns, per_sequence, mask)


def position(index: int, length: int) -> str:
    if index == 0:
        return "first"
    return "last" if index == length - 1 else str(2 ** int(math.log2(index)))


def buckets(data: RaggedBatch, sequence: int, token: int) -> dict[str, str | None]:
    """The bucket of one token in each dimension, as signals.md words it."""
    begin, end = int(data.offsets[sequence]), int(data.offsets[sequence + 1])

    def at(name: str) -> float:
        return float(data.columns[name][token if name in data.per_token else sequence])

    mu, version, turn, advantage = at("sampling_logprobs"), at("policy_versions"), at("turns"), at("advantages")
    lag = VERSION - version
    return {
        "position": position(token - begin, end - begin),
        "length": str(2 ** int(math.log2(end - begin))),
        "mu_probability": None if math.isnan(mu) else [name for edge, name in EDGES if math.exp(mu) >= edge][-1],
        "lag": None if version < 0 else "negative" if lag < 0 else "9+" if lag > 8 else str(int(lag)),
        "turn": None if turn < 0 else "16+" if turn > 15 else str(int(turn)),
        "advantage_sign": "negative" if advantage < 0 else "positive" if advantage > 0 else "zero",
        "shard": "3",
        "label:engine": "vllm",
    }


def expected(data: RaggedBatch) -> dict[tuple[str, str, str], list[float]]:
    """[tokens, sum d, sum |d|, sum d^2, sum k3] of each dimension, bucket and gap."""
    sums: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0] * 5)
    for sequence in range(data.sequences):
        for token in range(int(data.offsets[sequence]), int(data.offsets[sequence + 1])):
            for gap, (a, b) in GAPS.items():
                d = float(data.columns[a][token] - data.columns[b][token])
                if math.isfinite(d):
                    terms = [1, d, abs(d), d * d, math.expm1(d) - d]
                    for dimension, bucket in buckets(data, sequence, token).items():
                        if bucket is not None:
                            row = sums[dimension, bucket, gap]
                            row[:] = [x + y for x, y in zip(row, terms, strict=True)]
    return sums


def measured(data: RaggedBatch, makers_of_blocks: int = 1 << 18) -> StepSummary:
    measurer = Measurer("cpu")
    measurer.block_tokens = makers_of_blocks
    return measurer.measure(data, (), Origin(VERSION, 3, {"engine": "vllm"}))


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("block_tokens", [1 << 18, 200])
def test_each_bucket_has_the_sums_of_a_loop_over_its_tokens(per_token: bool, block_tokens: int) -> None:
    data = batch(5, per_token)
    tables = records_of(measured(data, block_tokens).arrays)
    wanted = expected(data)
    found = {name for name in tables if name.startswith("breakdown/") and not name.endswith("/cross")}
    assert found == {f"breakdown/{dimension}/{bucket}/{gap}" for dimension, bucket, gap in wanted}
    for (dimension, bucket, gap), row in wanted.items():
        table = tables[f"breakdown/{dimension}/{bucket}/{gap}"]
        got = [table[key] for key in ("tokens", "log_ratio", "log_ratio_abs", "log_ratio_square", "k3")]
        assert got[0] == row[0]
        assert got[1:] == pytest.approx(row[1:], rel=2e-5, abs=1e-6), (dimension, bucket, gap)


def test_a_step_answers_means_and_attribution_by_bucket_in_natural_order() -> None:
    answer = measured(batch(6, True)).step_figures()["breakdowns"]
    order = [name for _, name in EDGES]
    assert list(answer["mu_probability"]) == [name for name in order if name in answer["mu_probability"]]
    assert list(answer["position"]) == ["first", *(str(2**power) for power in range(6)), "last"]
    assert list(answer["advantage_sign"]) == ["negative", "zero", "positive"]
    first = answer["position"]["first"]
    assert first["gaps"]["mismatch"]["k1"] == -first["gaps"]["mismatch"]["log_ratio_mean"]
    assert set(first["attribution"]) == {"mismatch", "staleness", "interaction"}


def test_shards_merge_to_the_breakdowns_of_the_whole() -> None:
    left, right = (measured(batch(seed, False)) for seed in (7, 8))
    sides = [records_of(side.arrays) for side in (left, right)]
    for name, table in records_of(left.merge(right).arrays).items():
        counted = "tokens" if "tokens" in table else next(iter(table))
        assert table[counted] == sum(side.get(name, {}).get(counted, 0) for side in sides)


def test_labels_with_a_slash_stay_one_bucket() -> None:
    origin = Origin(None, 0, {"a/b": "c/d", "e": "1.5"})
    answer = Measurer("cpu").measure(batch(9, False), (), origin).step_figures()["breakdowns"]
    assert list(answer["label:a%2Fb"]) == ["c%2Fd"]
    assert list(answer["label:e"]) == ["1.5"]


def test_spans_are_the_runs_of_one_version_in_a_sequence() -> None:
    columns = {name: np.full(6, -1.0, np.float32) for name in ("sampling_logprobs", "logprobs")}
    columns["policy_versions"] = np.array([3, 3, 5, 5, -1, 5])
    data = RaggedBatch.from_positions(np.array([3, 3]), columns, {})
    versions = Measurer("cpu").measure(data, (), Origin(policy_version=6)).step_figures()["versions"]
    assert versions["spans"] == 4  # 3 3 | 5, then 5 | (not generated) | 5
    assert versions["spans_per_sequence_mean"] == 2
    assert versions["sequence_lag"]["mean"] == pytest.approx((7 / 3 + 1) / 2)
    assert versions["sequence_lag"]["floor_max"] == 2


def test_the_staleness_curve_finds_the_mismatch_at_lag_zero_and_its_growth() -> None:
    source = np.random.default_rng(4)
    lag = np.repeat(np.arange(5), 40_000)
    d = source.normal(0, 1, len(lag)) * np.sqrt(2 * (1e-3 + 2e-4 * lag))
    mu = np.full(len(lag), -2.0, np.float32)
    columns = {"sampling_logprobs": mu, "logprobs": (mu + d).astype(np.float32), "policy_versions": 7 - lag}
    data = RaggedBatch.from_positions(np.full(200, 1000), columns, {})
    curve = Measurer("cpu").measure(data, (), Origin(7)).step_figures()["versions"]["staleness_curve"]["total"]
    assert curve["lag"] == [0, 1, 2, 3, 4]
    assert curve["intercept"] == pytest.approx(1e-3, rel=0.05)
    assert curve["slope"] == pytest.approx(2e-4, rel=0.1)


FINITE = st.floats(-1e3, 1e3, width=32)


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=30))
def test_the_three_shares_sum_to_one_on_arbitrary_data(pairs: list[tuple[float, float]]) -> None:
    cross = {
        "tokens": len(pairs),
        "mismatch_square": sum(m * m for m, _ in pairs),
        "staleness_square": sum(s * s for _, s in pairs),
        "mismatch_staleness": sum(m * s for m, s in pairs),
    }
    shares = attribution(cross)
    if shares is not None:
        assert abs(math.fsum(shares.values()) - 1) <= 1e-12


@given(st.integers(0, 2**31))
def test_the_shares_of_every_bucket_sum_to_one(seed: int) -> None:
    answer = measured(batch(seed, seed % 2 == 0, sequences=6)).step_figures()
    entries = [entry for dimension in answer["breakdowns"].values() for entry in dimension.values()]
    shares = [entry["attribution"] for entry in entries if entry.get("attribution")]
    for share in [*shares, *([answer["attribution"]] if answer["attribution"] else [])]:
        # Where mismatch and staleness cancel, shares are as large as they are larger than what is left of them.
        assert abs(math.fsum(share.values()) - 1) <= 1e-12 * max(1.0, *map(abs, share.values()))
