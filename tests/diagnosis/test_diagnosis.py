"""Planted bugs are named, clean batches are left in peace, and what is named says why."""

import math
import re
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.diagnosis import Evidence, Limits, collect, diagnose
from offpolicy_monitor.diagnosis.hypotheses import HYPOTHESES
from offpolicy_monitor.diagnosis.scores import sampling
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.server.limits import mismatch_limits
from offpolicy_monitor.summary.step import StepSummary

from tests.diagnosis.confusion import HELD_BACK, LIMITS, clean_share, confusion, evidence, named, right
from tests.diagnosis.generators import CLEAN, FAULTS, SIZES, Generated, generate
from tests.fixtures.application import SAFETENSORS, Client, frame_bytes
from tests.fixtures.fused import fused_measurer

#: The evidence of a run of the usual profile.
collected = partial(collect, limits=LIMITS)


def evidence_of(batch: RaggedBatch) -> Evidence:
    return collected([Measurer("cpu").measure(batch, ())])


def columns(mu: Any, old: Any, lengths: Any) -> RaggedBatch:
    given = {"sampling_logprobs": np.asarray(mu, np.float32), "old_logprobs": np.asarray(old, np.float32)}
    return RaggedBatch.from_positions(np.asarray(lengths, np.int64), given, {})


def post(client: Client, step: int, made: Generated) -> None:
    """Post the messages of one gradient step."""
    for shard, (batch, origin) in enumerate(made.parts):
        envelope = {"step": step, "policy_version": origin.policy_version, "labels": dict(origin.labels)}
        envelope |= {"shard": shard, "shards": len(made.parts)}
        content = frame_bytes(envelope, {**batch.columns, "lengths": batch.lengths})
        assert client.post("/v1/runs/r/batches", content=content, headers=SAFETENSORS).status_code == 200


def test_bugs_of_medium_strength_are_named_on_held_back_seeds_and_clean_batches_are_noise() -> None:
    counts = confusion(FAULTS, "medium", SIZES["small"], HELD_BACK[:12])
    clean = confusion([CLEAN], "medium", SIZES["small"], HELD_BACK[:200])[CLEAN]
    assert right(counts) >= 0.95, counts
    assert clean_share(clean) >= 0.995, clean


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bug_of_medium_strength_is_named_in_a_batch_of_middle_size(fault: str) -> None:
    assert named(fused_measurer(), fault, "medium", SIZES["middle"], HELD_BACK[0]) == fault


def test_the_slope_is_that_of_least_squares_over_middling_probabilities() -> None:
    source = np.random.default_rng(0)
    mu = -source.exponential(2.0, 500).astype(np.float32)
    old = (0.8 * mu - 0.1 + 0.01 * source.standard_normal(500)).astype(np.float32)
    middle = (mu > math.log(0.01)) & (mu < math.log(0.9))
    slope = np.polyfit(mu[middle].astype(float), old[middle].astype(float), 1)[0]
    assert evidence_of(columns(mu, old, [200, 300]))["signature.regression.slope"] == pytest.approx(slope, rel=1e-6)


def test_correlations_of_neighbours_are_pearsons_over_pairs_inside_sequences() -> None:
    source = np.random.default_rng(1)
    mu, old = -source.exponential(1.0, (2, 90)).astype(np.float32)
    lengths = [30, 1, 59]
    parts = [slice(0, 30), slice(30, 31), slice(31, 90)]
    pairs = [(old[part][:-1], old[part][1:], mu[part][:-1], mu[part][1:]) for part in parts]
    a_first, a_second, b_first, b_second = (np.concatenate(column).astype(float) for column in zip(*pairs, strict=True))
    evidence = evidence_of(columns(mu, old, lengths))
    forward, backward = np.corrcoef(a_first, b_second)[0, 1], np.corrcoef(a_second, b_first)[0, 1]
    assert evidence["signature.neighbours.next"] == pytest.approx(forward, abs=1e-6)
    assert evidence["signature.neighbours.previous"] == pytest.approx(backward, abs=1e-6)


def test_the_share_of_a_shift_is_twice_the_difference_of_covariances_over_mean_square_d() -> None:
    mu, old = np.random.default_rng(1).normal(-2.0, 0.5, (2, 90)).astype(np.float32).astype(float)
    forward, backward = np.cov(old[:-1], mu[1:], ddof=0)[0, 1], np.cov(old[1:], mu[:-1], ddof=0)[0, 1]
    found = evidence_of(columns(mu, old, [90]))["signature.neighbours.share"]
    assert found == pytest.approx(2 * abs(forward - backward) / np.mean((old - mu) ** 2), rel=1e-4)


def test_a_shift_of_half_of_the_answers_is_named_where_the_mismatch_falls_with_the_position_by_chance() -> None:
    named_so = [
        named(fused_measurer(), "off_by_one", "medium", SIZES["small"], HELD_BACK[seed]) for seed in (10, 27, 34)
    ]
    assert named_so == ["off_by_one"] * 3


#: Of a service's own evidence: prompts without BOS in CTranslate2 4.8 with int8, of the demo's Llama, steps 14 to 31.
WITHOUT_BOS = {
    "calibration.share": 0.03605,
    "calibration.tokens": 23370.0,
    "calibration.z": 6.668,
    "few.beginning_second_moment": 0.4533,
    "few.k3_share": 0.02069,
    "few.sequences": 13.0,
    "few.sequences_share": 0.001881,
    "gaps.mismatch.abs_log_ratio_mean": 1.088,
    "gaps.mismatch.k1": 0.7299,
    "gaps.mismatch.k3": 0.7301,
    "gaps.mismatch.ratio_mean": 1.0,
    "gaps.mismatch.tokens": 23371,
    "limits.critical": 0.01,
    "limits.warning": 0.002,
    "signature.decimals.share": 0.003589,
    "signature.decimals.tokens": 4737.0,
    "signature.first_token.second_moment_share": 0.1341,
    "signature.first_token.token_share": 0.2958,
    "signature.grid.share": 0.0003638,
    "signature.grid.tokens": 19240.0,
    "signature.learned.difference": 0.6361,
    "signature.learned.z": 29.79,
    "signature.low_probability.direction": -0.003185,
    "signature.low_probability.k3_share": 0.03785,
    "signature.low_probability.z": -0.05524,
    "signature.neighbours.next": 0.09175,
    "signature.neighbours.previous": -0.1193,
    "signature.neighbours.share": 0.2717,
    "signature.neighbours.z": 19.15,
    "signature.position.decline": 0.5648,
    "signature.position.growth": 0.0,
    "signature.position.z": -7.911,
    "signature.regression.share": 0.03791,
    "signature.regression.slope": 0.7023,
    "signature.regression.z": 31.18,
    "signature.uncertain.exact_fraction": 0.0,
    "signature.uncertain.tokens": 20870.0,
    "steps.before_jump": 6.0,
    "steps.k3_growth": 2.446,
    "steps.k3_growth_z": 5.113,
    "steps.k3_jump": 636.4,
    "steps.k3_jump_step": 14.0,
}


def test_prompts_without_bos_in_a_real_engine_are_no_shift_though_one_neighbour_correlates_more() -> None:
    assert WITHOUT_BOS["signature.neighbours.z"] > 15
    first, second, *_ = diagnose(Evidence(WITHOUT_BOS, {}))
    assert (first["name"], second["name"]) == ("prompt", "unknown") and first["score"] > 0.6


def test_the_coarsest_grid_that_holds_every_value_is_the_step_of_rounding() -> None:
    mu = -np.random.default_rng(2).exponential(2.0, 400)
    evidence = evidence_of(columns(np.round(mu * 16) / 16, mu, [400]))
    assert (evidence["signature.grid.step"], evidence["signature.grid.share"]) == (1 / 16, 1.0)


def test_evidence_does_not_depend_on_how_the_batch_is_cut() -> None:
    batch, _ = generate("temperature", "medium", 2000, 2).parts[0]
    whole, cut = Measurer("cpu"), Measurer("cpu")
    cut.block_tokens = 150
    left, right = (collected([measurer.measure(batch, ())]) for measurer in (whole, cut))
    assert left == pytest.approx(right, rel=1e-6, abs=1e-9)


def test_nothing_is_named_where_there_is_no_mismatch() -> None:
    mu = -np.random.default_rng(4).exponential(1.0, 200)
    alone = RaggedBatch.from_positions(np.array([200]), {"sampling_logprobs": mu.astype(np.float32)}, {})
    assert diagnose(evidence_of(alone)) == []
    assert diagnose(evidence_of(columns(mu, mu, [200])), bitwise=True) == []
    assert diagnose(evidence_of(columns(mu, mu, [200])))[0]["name"] == "copied"


def calm_steps(measurer: Measurer, number: int) -> list[StepSummary]:
    (batch, _), *_ = generate(CLEAN, "weak", 2000, 5).parts
    return [measurer.measure(batch, ())] * number


def unlike(measurer: Measurer, size: float, seed: int) -> StepSummary:
    """A step whose log-probs differ by noise of this deviation, where all tokens are alike."""
    source = np.random.default_rng(seed)
    mu = -source.exponential(1.0, 4000)
    return measurer.measure(columns(mu, mu + size * source.standard_normal(4000) - size**2 / 2, [400] * 10), ())


def test_a_jump_alone_is_named_unknown_with_its_step_and_what_to_check() -> None:
    measurer = fused_measurer()
    summaries = [*calm_steps(measurer, 6), *(unlike(measurer, 0.5, seed) for seed in range(6))]
    first = diagnose(collected(summaries, range(90, 102)))[0]
    assert (first["name"], first["since_step"]) == ("unknown", 96)
    assert first["evidence"]["steps.k3_jump_step"] == 96
    assert "token ids of one prompt" in first["try"][1]


def test_a_jump_from_which_the_mismatch_grows_is_stale_weights() -> None:
    measurer = fused_measurer()
    aging = [unlike(measurer, 0.2 * math.sqrt(age), age) for age in range(1, 10)]
    first = diagnose(collected([*calm_steps(measurer, 6), *aging], range(90, 105)))[0]
    assert (first["name"], first["since_step"]) == ("stale_weights", 96)
    assert diagnose(collected(calm_steps(measurer, 8)))[0]["name"] == CLEAN


def rewarded(steps: int, learned: float) -> list[StepSummary]:
    """Steps of a mismatch that grows; d of answers that were rewarded is larger by this share of |d|, others' less."""
    source, made = np.random.default_rng(7), []
    for age in range(1, steps + 1):
        mu, sign = -source.exponential(1.0, 4000), np.repeat(np.tile([1.0, -1.0], 5), 400)
        d = 0.2 * math.sqrt(age) * source.standard_normal(4000)
        d += learned * np.abs(d) * sign - 0.02 * age
        batch = columns(mu, mu + d, [400] * 10)
        given = {**batch.columns, "advantages": sign.astype(np.float32)}
        made.append(fused_measurer().measure(RaggedBatch.from_positions(batch.lengths, given, {}), ()))
    return made


def test_growth_after_a_jump_is_stale_weights_where_the_trainer_has_learned_what_the_engine_has_not() -> None:
    measurer = fused_measurer()
    learned, noise = ([*calm_steps(measurer, 6), *rewarded(9, share)] for share in (0.15, 0.0))
    assert diagnose(collected(learned, range(15)))[0]["name"] == "stale_weights"
    assert diagnose(collected(noise, range(15)))[0]["name"] == "partial_sync"


def test_a_mismatch_that_knows_what_was_rewarded_is_not_of_a_coarse_cache() -> None:
    marks = {"gaps.mismatch.tokens": 1e4, "gaps.mismatch.k3": 0.2, "limits.critical": 0.01}
    marks |= {"signature.position.growth": 0.8, "signature.position.z": 8.0}
    knows = {"signature.learned.difference": 0.5, "signature.learned.z": 15.0}
    names = [diagnose(Evidence(given, {}))[0]["name"] for given in (marks, marks | knows)]
    assert names == ["kv_precision", "unknown"]


def test_what_was_learned_is_the_difference_in_mean_d_between_rewarded_answers_and_others_over_mean_abs_d() -> None:
    mu, sign = np.full(8, -2.0), np.array([1.0, 1.0, 1.0, 0.0, 0.0, -1.0, -1.0, -1.0])
    d = np.array([0.3, 0.1, 0.2, 5.0, -5.0, -0.1, 0.0, -0.2])
    given = {**columns(mu, mu + d, [8]).columns, "advantages": sign.astype(np.float32)}
    found = evidence_of(RaggedBatch.from_positions(np.array([8]), given, {}))
    assert found["signature.learned.difference"] == pytest.approx(0.3 / 0.15, rel=1e-5)
    assert found["signature.learned.z"] == pytest.approx(0.3 / math.sqrt(2 * (0.02 / 3) / 3), rel=1e-4)
    assert "signature.learned.z" not in evidence_of(columns(mu, mu + d, [8]))


def test_an_engine_far_from_the_trainer_is_not_called_one_that_samples_otherwise_than_it_reports() -> None:
    marks = {
        "calibration.share": 0.2,
        "calibration.z": 50.0,
        "calibration.tokens": 50_000.0,
        "gaps.mismatch.tokens": 1.0,
    }
    near, far = ({**marks, "gaps.mismatch.k3": k3} for k3 in (2e-4, 0.1))
    assert sampling(Evidence(near, {})) > 0.8
    assert sampling(Evidence(far, {})) == 0.0


def test_what_nothing_explains_is_noise_up_to_the_critical_mismatch_of_the_run_and_unknown_beyond() -> None:
    step = unlike(fused_measurer(), 0.25, 1)
    k3 = collected([step])["gaps.mismatch.k3"]
    assert diagnose(collect([step], limits=Limits(k3 / 10, 1.01 * k3)))[0]["name"] == CLEAN
    found = diagnose(collect([step], limits=Limits(k3 / 10, 0.99 * k3)))
    assert found[0]["name"] == "unknown" and CLEAN not in {row["name"] for row in found}


def rescored(
    measurer: Measurer, decode: float, trainer: float, again: float | None = None, slope: float = 1.0
) -> StepSummary:
    """A step of which the engine's decode is off its prefill by `decode` and a slope, the trainer off it by `trainer`.

    `again` is what a second pass of the trainer is off the first one by.
    """
    source = np.random.default_rng(1)
    prefill = -source.exponential(1.0, 4000)
    mu = slope * prefill - decode * source.standard_normal(4000)
    old = prefill + trainer * source.standard_normal(4000)
    sent = {"sampling_logprobs": mu, "old_logprobs": old, "engine_logprobs": prefill}
    if again is not None:
        sent["old_logprobs_repeat"] = old + again * source.standard_normal(4000)
    columns = {name: column.astype(np.float32) for name, column in sent.items()}
    return measurer.measure(RaggedBatch.from_positions(np.full(10, 400), columns, {}), ())


def test_a_mismatch_that_an_engine_has_with_itself_is_named_so_from_the_runs_warning_on() -> None:
    measurer, limits = fused_measurer(), Limits(0.01, 0.05)
    first, *others = diagnose(collect([rescored(measurer, 0.25, 0.02)], limits=limits))
    assert first["name"] == "engine_internal" and first["score"] > 0.8
    assert first["evidence"]["noise_floor.attribution.engine_internal"] > 0.98
    assert "unknown" not in {row["name"] for row in others} and "raw" in first["try"][0]
    between = diagnose(collect([rescored(measurer, 0.02, 0.5)], limits=limits))
    assert between[0]["name"] == "unknown" and "engine_internal" not in {row["name"] for row in between}
    calm = diagnose(collect([rescored(measurer, 0.05, 0.02)], limits=limits))
    assert [row["name"] for row in calm] == [CLEAN] and calm[0]["score"] == 1


def test_neither_a_temperature_nor_a_sync_is_blamed_for_what_an_engine_does_by_itself() -> None:
    measurer = fused_measurer()
    as_temperature = rescored(measurer, 0.1, 0.02, slope=1.25)
    assert scored([without_floor(as_temperature)])["temperature"] > 0.5
    assert scored([as_temperature])["engine_internal"] > 0.5 > scored([as_temperature])["temperature"]
    growing = [rescored(measurer, 0.1 * math.sqrt(age), 0.02) for age in range(1, 10)]
    assert scored([*map(without_floor, growing)])["partial_sync"] > 0.5 > scored(growing)["partial_sync"]
    assert scored(growing)["engine_internal"] > 0.5


def test_a_mismatch_at_the_floor_of_the_trainer_is_noise_however_large_it_is() -> None:
    measurer, limits = fused_measurer(), Limits(0.002, 0.01)
    steps = [rescored(measurer, 0.05, 0.4, again) for again in (0.45, 0.1)]
    at_the_floor, above = (diagnose(collect([step], limits=limits))[0] for step in steps)
    assert (at_the_floor["name"], above["name"]) == (CLEAN, "unknown")
    assert at_the_floor["evidence"]["noise_floor.trainer.of_mismatch"] > 1


def without_floor(step: StepSummary) -> StepSummary:
    keys = [key for key in step.arrays.scheme.keys if key.startswith("noise_floor/")]
    return StepSummary(step.arrays.without(keys))


def scored(steps: list[StepSummary]) -> dict[str, float]:
    """The score of each hypothesis that has one worth showing; 0 of any other."""
    return defaultdict(float, {row["name"]: row["score"] for row in diagnose(collected(steps))})


def test_the_evidence_names_the_replica_and_the_worst_sequence() -> None:
    measurer = fused_measurer()
    stale = next(evidence(measurer, generate("stale_weights", "strong", 20_000, seed)) for seed in (1, 2, 3, 4)
                 if generate("stale_weights", "strong", 20_000, seed).parts[-1][1].shard == 3)  # fmt: skip
    assert stale.names["signature.replica.name"] in ("engine e2", "shard 2")
    garbled = diagnose(evidence(measurer, generate("garbled", "strong", 20_000, 1)))[0]
    assert garbled["name"] == "garbled"
    assert re.fullmatch(r"step 0, shard \d+, index \d+", garbled["evidence"]["few.worst"])


def test_a_sequence_that_goes_wrong_in_its_midst_is_told_from_one_that_was_never_right() -> None:
    source, measurer = np.random.default_rng(3), fused_measurer()
    mu = -source.exponential(1.0, 16_000)
    old = mu + 0.02 * source.standard_normal(16_000)
    for begin, name in ((4000, "garbled"), (4300, "sampled_padding")):
        broken = old.copy()
        broken[begin:4400] -= np.abs(source.normal(3.0, 2.0, 4400 - begin))
        assert diagnose(collected([measurer.measure(columns(mu, broken, [400] * 40), ())]))[0]["name"] == name


def test_the_limits_of_a_diagnosis_are_those_of_the_run() -> None:
    own = {"MismatchKL": {"warning": 0.5, "critical": None}}
    usual = mismatch_limits("fp4", {})
    assert usual.critical > mismatch_limits("dense_bf16", {}).critical > usual.warning / 10 > 0
    assert mismatch_limits("fp4", own) == Limits(0.5, usual.critical)


def test_every_hypothesis_says_what_to_try_and_has_a_name_of_its_own() -> None:
    assert len({row.name for row in HYPOTHESES}) == len(HYPOTHESES) == 19
    assert all(row.tries and row.paths and row.summary.endswith(".") for row in HYPOTHESES)


def test_the_service_names_the_bug_of_a_run_with_its_evidence(client: Client) -> None:
    for step in (3, 4):
        post(client, step, generate("top_p", "medium", 2000, HELD_BACK[step]))
    answer = client.get("/v1/runs/r/diagnosis").json()
    first = answer["hypotheses"][0]
    assert (first["name"], answer["steps"]) == ("top_p", [3, 4])
    assert first["score"] > 0.5
    assert first["evidence"]["mismatch.ratio_mean"] < 0.995
    assert first["try"]
    assert client.get("/v1/runs/r/diagnosis?from=4&to=4").json()["steps"] == [4, 4]
    assert client.get("/v1/runs/r/diagnosis?from=9").json() == {"hypotheses": [], "steps": []}


def test_a_range_that_is_none_and_a_run_that_is_unknown_are_refused(client: Client) -> None:
    post(client, 1, generate(CLEAN, "weak", 2000, HELD_BACK[0]))
    assert client.get("/v1/runs/unknown/diagnosis").status_code == 404
    for query, field in (("from=-1", "from"), ("to=soon", "to"), ("first=1", "first")):
        problem = client.get(f"/v1/runs/r/diagnosis?{query}")
        assert (problem.status_code, problem.json()["errors"][0]["field"]) == (422, field)


def test_total_gaps_of_log_probs_with_four_decimals_as_prime_rl_annotates_them_are_named_decimal() -> None:
    draws = np.random.default_rng(7)
    mu = -draws.exponential(1.0, 4_000)
    pi = mu + 0.02 * draws.standard_normal(4_000)
    named = {"sampling_logprobs": mu, "logprobs": pi}
    rounded = {name: np.round(values, 4).astype(np.float32) for name, values in named.items()}
    batch = RaggedBatch.from_positions(np.full(40, 100), rounded, {})
    assert [found["name"] for found in diagnose(evidence_of(batch))[:1]] == ["decimal"]
