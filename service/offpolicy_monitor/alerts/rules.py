"""The rules as data: one row per rule, with its thresholds by profile, how long it must last, and where it comes from.

A new rule is a row. Steps are training steps, since one lasts from ten seconds to half an hour. Rules that are made of
other rules come after them. What the numbers became in use is docs/alerts.md's to tell.
"""

from collections.abc import Iterable
from typing import Final

from offpolicy_monitor.alerts import calibration, weights
from offpolicy_monitor.alerts.comparisons import (
    at_the_cap,
    bad_share,
    beyond_noise,
    blindness,
    cut,
    dominates,
    drop_from_baseline,
    entropy_drop,
    figure,
    grown,
    growth_of,
    in_rollouts,
    is_a_cap,
    large,
    large_or_grown,
    larger,
    length_bias,
    magnitude,
    reward_lost,
    share_of_several,
    spikes,
    surge,
    together,
)
from offpolicy_monitor.alerts.engine import LAG
from offpolicy_monitor.alerts.rule import Rule, Severity, Threshold
from offpolicy_monitor.vocabulary import GAPS, HALVES

K3: Final = "gaps.mismatch.k3"
TOTAL_K3: Final = "gaps.total.k3"
SPREAD: Final = "gaps.mismatch.abs_log_ratio_mean"
TOTAL_SPREAD: Final = "gaps.total.abs_log_ratio_mean"
LENGTH: Final = "sequence_length_mean"
MOST_TOKENS: Final = "sequence_length_max"
AT_MOST: Final = "longest_fraction"
ENTROPY: Final = "entropy_mean"
REWARD: Final = "reward_mean"
AGREEMENT: Final = "routing.mismatch.agreement"
GEOMETRIC: Final = "gaps.mismatch.sequence.log_geometric_ratio_abs_mean"
OF_NOISE: Final = ("gaps.mismatch.log_ratio_std", "gaps.mismatch.tokens", "gaps.mismatch.sequences")
EXTREME: Final = "gaps.mismatch.sequence.extreme_fraction"
MASKED: Final = "correction.masked_token_fraction"
MASKED_SEQUENCES: Final = "correction.masked_sequence_fraction"
EXACT: Final = "gaps.mismatch.exact_fraction"
VERSION: Final = "policy_version"
RISEN: Final = weights.Looked(VERSION, K3, SPREAD)
BAD_TOKENS: Final = ("excluded_tokens.nonfinite", "suspect_tokens.positive")
FILLED: Final = "zero_filled_tokens"
RATIO: Final = "gaps.mismatch.ratio_mean"
TAILS: Final = "gaps.mismatch.tail_fraction"
LONGEST, SHORTEST = "correction.length_bias.longest", "correction.length_bias.shortest"

#: Profile -> a k3 above those of published runs that trained well, and one above three times all of them.
LARGE: Final = {"dense_bf16": 1e-2, "moe_bf16": 1.5e-2, "fp8": 1.2e-2, "fp4": 3e-2, "bitwise": 0.0}
BEYOND_ALL: Final = {"dense_bf16": 3e-2, "moe_bf16": 4.5e-2, "fp8": 4e-2, "fp4": 2e-1, "bitwise": 0.0}


def by_severity(warning: Threshold | None, critical: Threshold | None = None) -> dict[Severity, Threshold]:
    """Thresholds of warning and critical; None is no such severity."""
    given: dict[Severity, Threshold | None] = {"warning": warning, "critical": critical}
    return {severity: threshold for severity, threshold in given.items() if threshold is not None}


def lasting(warning: int, critical: int | None = None) -> dict[Severity, int]:
    """Steps a severity must last."""
    return {"warning": warning, "critical": warning if critical is None else critical}


_SIMPLE: Final = (
    Rule(
        "SyncBroken", "The engine samples with other weights than the trainer has",
        RISEN, weights.unsynced(RISEN),
        "k3 over what it was before it tripled, from the step at which its cause proves to be weights until it is back",
        {"critical": weights.RETURNED}, {"critical": 1},
        "vime issue 274, UniRL issue 226; levels are proposals", half="mismatch", change=True, also=weights.FIGURES,
        explain=weights.told(RISEN),
    ),
    Rule(
        "MismatchKL", "Engine and trainer disagree about the same tokens", (K3,), figure(K3), "mismatch k3",
        by_severity(LARGE, {**LARGE, "fp8": 2e-2, "fp4": 1e-1}), lasting(5, 3),
        "verl pull request 7519: bf16 up to 0.0089, fp8 0.010 before it grew; prime-rl new-model gate 0.015; NeMo-RL "
        "nightly gates 2e-3 to 1e-1; critical: with growth, or above three times what any healthy run has published",
        half="mismatch", grave=large_or_grown(BEYOND_ALL, K3, 3), alone=BEYOND_ALL,
    ),
    Rule(
        "MismatchDrift", "Engine and trainer drift apart", (K3,), growth_of(K3, 2.5e-4),
        "growth of k3 since the run began, where a Shiryaev-Roberts test of log k3 is sure of it, from 2.5e-4 on",
        by_severity(1.5, 10), lasting(1, 3),
        "vime issue 64: 0.011 to 0.036 in 30 steps; open-instruct issue 1473; tests/incidents; levels as MismatchKL",
        half="mismatch", change=True, baseline=K3, also=(VERSION,), grave=large(LARGE, K3), explain=grown(K3, VERSION),
    ),
    Rule(
        "MismatchSpike", "The mismatch jumps for single steps", (K3,), spikes(K3, 1e-3, 10, 10),
        "how often in the last 10 steps k3 went above 1e-3 and 10 median50(k3), steps in a row counted once",
        by_severity(0, 2), lasting(1),
        "When Speed Kills Stability; 3 in 10 steps is a proposal", half="mismatch", change=True,
        told="the number of spikes in the last 10 steps",
    ),
    Rule(
        "ProbabilityDiff", "Probabilities of sampled tokens differ between engine and trainer",
        ("gaps.mismatch.probability_diff_mean",), figure("gaps.mismatch.probability_diff_mean"),
        "mean probability difference",
        by_severity(
            {"dense_bf16": 0.01, "moe_bf16": 0.015, "fp8": 0.015, "fp4": 0.04},
            {"dense_bf16": 0.02, "moe_bf16": 0.03, "fp8": 0.03, "fp4": 0.08},
        ),
        lasting(5), "verl FAQ has 0.005 and 0.01; measured", half="mismatch",
    ),
    Rule(
        "ExtremeSequences", "Many sequences have a token that one side finds likely and the other does not",
        (EXTREME, "sequences"), share_of_several(EXTREME, "sequences", 2),
        "share of sequences with a token whose probabilities differ by more than 0.5, where they are two or more",
        by_severity({"dense_bf16": 0.01, "fp4": 0.03}, {"dense_bf16": 0.05, "fp4": 0.1}),
        lasting(5), "TIS blog: 1 or 2 of 512 where healthy", half="mismatch",
    ),
    Rule(
        "RatioTail", "Many tokens' ratios are beyond 2 or below 1/2", ("gaps.mismatch.tail_fraction",),
        figure("gaps.mismatch.tail_fraction"), "tail_fraction", by_severity(0.01, 0.1), lasting(5),
        "R3: 10 % is the danger line", half="mismatch",
    ),
    Rule(
        "RatioNotCalibrated", "The mean ratio is not 1: the engine reports another distribution than it samples from",
        tuple(f"gaps.mismatch.{name}" for name in ("ratio_mean", "chi2", "tokens")),
        calibration.miscalibration("mismatch"),
        "|ratio_mean - 1| where its z > 5", by_severity(0.005, 0.02), lasting(3),
        "NeMo-RL tests; TRL issue 6789 (top-p renormalisation); measured", half="mismatch",
    ),
    Rule(
        "SamplingNotCalibrated", "Tokens are drawn from another distribution than the reported log-probs say",
        (K3, *calibration.INPUTS), calibration.uncalibrated((K3, TOTAL_K3)),
        "|mean of -log mu - entropy| over 10 steps as a share of the entropy, beyond what k3 allows, where its z > 5",
        by_severity(0.04), lasting(1),
        "proposal: 0.04 is what the diagnosis believes from; a draw at temperature 0.8 has 0.19 (tests/detection)",
        half="mismatch", also=(TOTAL_K3,), explain=calibration.told,
    ),
    Rule(
        "LowEffectiveSampleSize", "Few tokens carry the weight of the batch", ("gaps.mismatch.ess",),
        figure("gaps.mismatch.ess"), "token ESS", by_severity(0.5, 0.3), lasting(5), "verl docs", above=False,
        half="mismatch",
    ),
    Rule(
        "ChiSquare", "The variance of the ratios is large", ("gaps.mismatch.chi2",), figure("gaps.mismatch.chi2"),
        "token chi2", by_severity(0.1, 1), lasting(5), "verl docs", half="mismatch",
    ),
    Rule(
        "TotalOffPolicy", "The data is off-policy in total", ("gaps.total.log_ratio_mean",),
        magnitude("gaps.total.log_ratio_mean"), "|mean total d|", by_severity(0.03, 0.1), lasting(5), "verl docs",
        half="total", follows=HALVES,
    ),
    Rule(
        "PerplexityGap", "Sequences are far apart in geometric ratio", (GEOMETRIC,),
        beyond_noise(GEOMETRIC, *OF_NOISE),
        "mean |log geometric ratio|, where it is above twice what independent noise makes in so few tokens",
        by_severity({"dense_bf16": 0.01, "fp4": 0.03}, {"dense_bf16": 0.05, "fp4": 0.1}), lasting(5),
        "IcePop: training fails beyond 0.05; fp4 measured", half="mismatch", also=OF_NOISE,
    ),
    Rule(
        "Correlation", "Probabilities of engine and trainer do not go together",
        ("gaps.mismatch.probability_correlation",), figure("gaps.mismatch.probability_correlation"),
        "probability correlation",
        by_severity({"dense_bf16": 0.99, "fp4": 0.97}, {"dense_bf16": 0.95, "fp4": 0.93}), lasting(5),
        "MiniMax-M1; fp4 measured", above=False, half="mismatch",
    ),
    Rule(
        "MultiplicativeError", "Tokens' probabilities are off by a factor", ("gaps.mismatch.multiplicative_error",),
        figure("gaps.mismatch.multiplicative_error"), "multiplicative_error",
        by_severity({"dense_bf16": 1.05, "fp4": 1.15}, {"dense_bf16": 1.1, "fp4": 1.3}), lasting(5),
        "NeMo-RL; fp4 measured", half="mismatch",
    ),
    Rule(
        "BadUpdates", "The policy is pushed away from answers that it no longer gives",
        ("gaps.total.bad_update_fraction",), figure("gaps.total.bad_update_fraction"),
        "share of tokens with A < 0 and mu - pi > 0.5", by_severity(1e-3, 5e-3), lasting(3),
        "DPPO: at most 0.5 % of updates drove the collapse", half="total", follows=HALVES,
    ),
    Rule(
        "SecondMoment", "Tokens that training pushes outward are far out already",
        ("gaps.total.outward_second_moment",), figure("gaps.total.outward_second_moment"),
        "mean total d^2 over tokens with A d > 0", by_severity(0.08, 0.3), lasting(3),
        "M2PO masks down to 0.04; 0.08 and 0.3 measured on runs that learn", half="total", follows=HALVES,
    ),
    Rule(
        "MaskRate", "The correction in use masks more than it is meant to", (MASKED,),
        larger(MASKED, MASKED_SEQUENCES), "masked share of the method in use, of tokens or of sequences",
        by_severity(
            {"token": 0.01, "sequence": 0.2, "gspo": 0.4, "grpo": 0.01},
            {"token": 0.1, "sequence": 0.5, "gspo": 0.7, "grpo": 0.05},
        ),
        lasting(5), "IcePop masks 1 to 2 per mille; GSPO about 15 %, GRPO 0.13 %", also=(MASKED_SEQUENCES,),
        follows=GAPS,
    ),
    Rule(
        "MaskBlind", "The correction in use masks less while the drift grows", (MASKED, TOTAL_SPREAD),
        blindness(MASKED, TOTAL_SPREAD),
        "fall of the mask rate and rise of mean |d| over 50 steps, the smaller, where both slopes are sure",
        by_severity(0.5), lasting(5), "KPop; the sizes are proposals", follows=GAPS,
    ),
    Rule(
        "LengthBias", "The correction in use masks long answers far more often than short ones", (LONGEST, SHORTEST),
        length_bias(LONGEST, SHORTEST, 0.05),
        "odds of being masked in the longest over those in the shortest quarter, 5 points apart",
        by_severity(2), lasting(10), "the length trap: 1.001^2000 = 7.4", follows=(*GAPS, "CollapseRisk"),
    ),
    Rule(
        "StaleData", "Tokens were sampled many versions ago", (LAG,), in_rollouts(LAG, VERSION),
        "largest version lag, over the versions that the run goes on by from one rollout to the next",
        by_severity(8, 16), lasting(1), "prime-rl and AReaL bounds", half="staleness", also=(VERSION,),
        told="largest version lag",
    ),
    Rule(
        "EntropyCollapse", "The policy's entropy collapses", (ENTROPY,), entropy_drop(ENTROPY, REWARD, 0.5, 0.2),
        "below 0.5 nats, and not while rewards rise: entropy down against 50 steps ago, as a share; 1 below 0.2 nats "
        "and half the baseline where rewards fell",
        by_severity(0.5, 0.99), lasting(5), "TIS blog; verl on GSM8K: entropy down to a ninth while rewards double",
        also=(REWARD,), told="the share of its entropy that the policy has lost", follows=("CollapseRisk",),
    ),
    Rule(
        "RewardCollapse", "Rewards fall below what the run had reached", (REWARD,), reward_lost(REWARD),
        "share of the gain in reward (best less first mean of 10 steps) that is lost again, beyond three times the "
        "noise",
        by_severity(0.3, 0.8), lasting(5), "proposal",
        told="the share of its gain in reward that the run has lost again",
    ),
    Rule(
        "LengthSurge", "Answers grow longer fast", (LENGTH,), surge(LENGTH), "EWMA10 / EWMA200 of mean length",
        by_severity(1.3, 1.6), lasting(5), "Beyond Precision", follows=("CollapseRisk",),
    ),
    Rule(
        "Truncation", "Many answers are cut off before they end", (AT_MOST, MOST_TOKENS),
        at_the_cap(AT_MOST, MOST_TOKENS),
        "share of the sequences at `length_cap`, or else at the longest length of all last 10 steps, where 1 % have it",
        by_severity(0.5, 0.9), lasting(5),
        "TRL issue 5697: 0.97 and more where nothing was learned; Trinity-RFT issue 176; the levels are proposals; "
        "critical: where `length_cap` is known, or answers have ended earlier",
        told="the share of the answers at the length cap", grave=is_a_cap(AT_MOST), explain=cut(AT_MOST, MOST_TOKENS),
    ),
    Rule(
        "RoutingAgreement", "Engine and trainer choose different experts more often than when the run began",
        (AGREEMENT,), drop_from_baseline(AGREEMENT), "median of steps 5..25 less the share of experts in common",
        by_severity(0.03), lasting(5), "proposal; R3 and GSPO measured 10 % of experts changed", half="mismatch",
    ),
    Rule(
        "ShardOutlier", "One shard, engine or GPU disagrees with the trainer far more than the others",
        ("outliers.mismatch.ratio",), figure("outliers.mismatch.ratio"),
        "largest k3 of a shard or machine over the median of the others", by_severity(3, 10), lasting(5),
        "one stale replica; faulty hardware", half="mismatch",
    ),
    Rule(
        "DataQuality", "Log-probs are missing, impossible or copied", ("tokens",),
        bad_share(
            [(path, "tokens") for path in BAD_TOKENS],
            (FILLED, "tokens"), RATIO, TAILS, EXACT,
        ),
        "largest share of non-finite, positive or zero-filled log-probs; 1 where mismatch is identically 0",
        by_severity(0, 0.01), lasting(1), "verl clamps; AReaL and SkyRL zero-fill",
        also=(*BAD_TOKENS, FILLED, RATIO, TAILS, EXACT), half="data",
    ),
)  # fmt: skip

_BY_NAME: Final = {rule.name: rule for rule in _SIMPLE}
_OFF_POLICY: Final = (_BY_NAME["TotalOffPolicy"], _BY_NAME["SecondMoment"])
#: Signs that came before collapses, by the cause that raises them together.
BEFORE_COLLAPSE: Final = {
    "a gap": ("MismatchDrift", "MismatchSpike", "LowEffectiveSampleSize", "BadUpdates", "LengthBias"),
    "lengths": ("LengthSurge",),
    "entropy": ("EntropyCollapse",),
}

_COMPOSITE: Final = (
    Rule(
        "StalenessDominates", "Most of the off-policyness is staleness: fewer or smaller updates on one rollout help",
        ("attribution.staleness",), dominates("attribution.staleness", 0.8, _OFF_POLICY),
        "staleness' share of the total second moment while TotalOffPolicy or SecondMoment breaches", {"info": 0.8},
        {"info": 5}, "proposal", follows=("staleness", "total"),
    ),
    Rule(
        "MismatchDominates", "Most of the off-policyness is mismatch: the engine has to be fixed, not the lag",
        ("attribution.mismatch",), dominates("attribution.mismatch", 0.8, _OFF_POLICY),
        "mismatch's share of the total second moment while TotalOffPolicy or SecondMoment breaches", {"info": 0.8},
        {"info": 5}, "proposal", follows=("mismatch", "total"),
    ),
    Rule(
        "CollapseRisk", "Several signs that came before collapses are there together", ("tokens",),
        together([[_BY_NAME[name] for name in signs] for signs in BEFORE_COLLAPSE.values()], 20),
        "causes with a sign in the last 20 steps, one with a critical sign as two: "
        + "; ".join(f"{cause} ({', '.join(signs)})" for cause, signs in BEFORE_COLLAPSE.items()),
        {"critical": 2}, {"critical": 1}, "synthesis",
    ),
)  # fmt: skip

RULES: Final = (*_SIMPLE, *_COMPOSITE)

#: Parts of paths of figures of the last gradient step of a training step, since updates move them.
_OF_LAST: Final = frozenset({"attribution", "correction", "methods", "staleness", "total", "policy_version"})


def paths_of(rules: Iterable[Rule]) -> tuple[str, ...]:
    """Every figure that rules look at."""
    return tuple(sorted({path for rule in rules for path in (*rule.inputs, *rule.also, *rule.in_total)} | {LAG}))


def of_all(paths: Iterable[str]) -> frozenset[str]:
    """Those of the merge of all gradient steps of a training step: engine and data are the same in all of them, and
    what an early one alone shows (an engine, a shard, a token that is NaN, a stale sequence) is not missed."""
    return frozenset(path for path in paths if _OF_LAST.isdisjoint(path.split(".")))
