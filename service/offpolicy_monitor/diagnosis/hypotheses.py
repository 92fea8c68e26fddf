"""The table of hypotheses: what can be named, how it is scored, what it says, what to look at and what to try.

A further cause is a row here and a score function in scores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from offpolicy_monitor.diagnosis import scores
from offpolicy_monitor.diagnosis.evidence import JUMP, Evidence


@dataclass(frozen=True)
class Hypothesis:
    """A cause by name, and as `title` in the few words that follow "it looks like"; `paths` are the figures shown with
    it, `tries` what to do, first things first."""

    name: str
    title: str
    score: Callable[[Evidence], float]
    summary: str
    paths: tuple[str, ...]
    tries: tuple[str, ...]


HYPOTHESES: Final = (
    Hypothesis(
        "noise",
        "plain numeric noise",
        scores.noise,
        "Plain numeric noise: the engine samples from the trainer's policy but for rounding.",
        ("gaps.mismatch.ratio_mean", "gaps.mismatch.k1", "gaps.mismatch.k3", "signature.regression.slope"),
        ("Nothing, if k3 is within the profile's limits.", "float32 lm_head, or a higher precision in the engine."),
    ),
    Hypothesis(
        "top_p",
        "top-p renormalisation",
        scores.top_p,
        "The engine's log-probs are renormalised over a top-p or top-k nucleus; the trainer's are not.",
        (
            "gaps.mismatch.ratio_mean",
            "gaps.mismatch.k1",
            "gaps.mismatch.k3",
            "gaps.mismatch.abs_log_ratio_mean",
            "gaps.mismatch.chi2",
        ),
        ("Sample with top_p = 1 and top_k off.", "Or apply the same nucleus mask to the trainer's logits."),
    ),
    Hypothesis(
        "temperature",
        "two different temperatures",
        scores.temperature,
        "Engine and trainer divide their logits by different temperatures.",
        ("signature.regression.slope", "signature.regression.z", "signature.regression.share"),
        ("Divide the trainer's logits by the sampling temperature.", "Or ask the engine for raw log-probs."),
    ),
    Hypothesis(
        "off_by_one",
        "log-probs shifted by one token",
        scores.off_by_one,
        "Log-probs of one side belong to the neighbouring token.",
        ("signature.neighbours.next", "signature.neighbours.previous", "signature.neighbours.z"),
        ("Compare the shift of logits against labels on both sides.", "Check masks and the prompt's last token."),
    ),
    Hypothesis(
        "stale_weights",
        "an engine on old weights",
        scores.stale_weights,
        "Part of the tokens were sampled with older weights than the trainer recomputes with.",
        ("signature.lag.share", "signature.lag.z", "signature.replica.share", "signature.replica.z", JUMP),
        ("Check that every engine took the last weight sync.", "Lower the allowed lag."),
    ),
    Hypothesis(
        "copied",
        "old log-probs copied from the engine",
        scores.copied,
        "old_logprobs are a copy of sampling_logprobs, or the engine is the trainer's own forward (bitwise profile).",
        ("gaps.mismatch.exact_fraction", "signature.uncertain.exact_fraction"),
        ("Send recomputed old_logprobs.", "If engine and trainer agree bitwise, set the run's profile to bitwise."),
    ),
    Hypothesis(
        "quantised",
        "rounded log-probs",
        scores.quantised,
        "Log-probs, or their differences, are rounded to a grid.",
        ("signature.grid.step", "signature.grid.share"),
        ("Take log-probs from float32 logits.", "Look for a bfloat16 or text round trip on the way."),
    ),
    Hypothesis(
        "first_token",
        "another prompt template",
        scores.first_token,
        "Most of the mismatch is on first tokens: the two sides see different prompts.",
        ("signature.first_token.second_moment_share", "signature.first_token.token_share"),
        ("Compare the token ids of prompts on both sides.", "Check the chat template and BOS."),
    ),
    Hypothesis(
        "low_probability_tail",
        "a low-precision lm_head",
        scores.low_probability_tail,
        "Improbable tokens are more probable in the engine than in the trainer.",
        ("signature.low_probability.k3_share", "signature.low_probability.token_share", "signature.low_probability.z"),
        ("A higher precision in the engine, its lm_head first.", "Sample with a small min_p on both sides."),
    ),
    Hypothesis(
        "routing",
        "different experts chosen",
        scores.routing,
        "The mismatch grows with the layers in which engine and trainer choose different experts.",
        (
            "routing.mismatch.agreement",
            "routing.mismatch.trend.share",
            "routing.mismatch.trend.z",
            "routing.mismatch.changed.share_of_second_moment",
            "routing.mismatch.changed.share_of_tokens",
        ),
        ("Replay the engine's routing in the trainer.", "The router in float32 on both sides."),
    ),
)
