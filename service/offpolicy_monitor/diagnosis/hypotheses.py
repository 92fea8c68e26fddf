"""The table of hypotheses: what can be named, how it is scored, what it says, what to look at and what to try.

A further cause is a row here and a score function in scores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from offpolicy_monitor.diagnosis import few, scores
from offpolicy_monitor.diagnosis.evidence import CRITICAL, Evidence
from offpolicy_monitor.diagnosis.over_steps import GROWTH, GROWTH_Z, JUMP, JUMPED_AT

_FEW: Final = (few.WORST, few.SHARE, few.COUNT, few.PART, few.EARLY)
_OVER_STEPS: Final = (JUMP, JUMPED_AT, GROWTH, GROWTH_Z)
_PARTS: Final = ("noise_floor.attribution.engine_internal", "noise_floor.attribution.cross_engine")
_FLOOR: Final = (*_PARTS, "noise_floor.trainer.of_mismatch")


@dataclass(frozen=True)
class Hypothesis:
    """A cause by name, and as `title` in the few words that follow "it looks like"; `paths` are the figures shown with
    it, `tries` what to do, first things first. `alone`: seen in one column, so that it needs no mismatch."""

    name: str
    title: str
    score: Callable[[Evidence], float]
    summary: str
    paths: tuple[str, ...]
    tries: tuple[str, ...]
    alone: bool = False


HYPOTHESES: Final = (
    Hypothesis(
        "noise",
        "plain numeric noise",
        scores.noise,
        "Plain numeric noise: the engine samples from the trainer's policy but for rounding.",
        ("gaps.mismatch.ratio_mean", "gaps.mismatch.k1", "gaps.mismatch.k3", "signature.regression.slope", *_FLOOR),
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
            "support.mismatch.ratio_mean",
            "support.mismatch.k3",
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
        tuple(f"signature.neighbours.{figure}" for figure in ("next", "previous", "z", "share")),
        ("Compare the shift of logits against labels on both sides.", "Check masks and the prompt's last token."),
    ),
    Hypothesis(
        "stale_weights",
        "an engine on old weights",
        scores.stale_weights,
        "Part of the tokens were sampled with older weights than the trainer recomputes with.",
        (
            "signature.replica.name",
            "signature.replica.ratio",
            "signature.replica.share",
            "signature.replica.z",
            "signature.lag.share",
            "signature.lag.z",
            "signature.learned.difference",
            "signature.learned.z",
            *_OVER_STEPS,
        ),
        (
            "Ask each engine which version it serves; the replica that is named first. Take one that is behind out.",
            "Look for a weight sync that failed or timed out at the step that is named, and sync again.",
            "If it grows with lag: lower the allowed lag, or drop rollouts that began before the last sync.",
        ),
    ),
    Hypothesis(
        "partial_sync",
        "weights that are not all synced",
        scores.partial_sync,
        "The mismatch of all tokens grows from step to step: the engine does not get all of the trainer's weights, or "
        "not as they are.",
        (GROWTH, GROWTH_Z, "gaps.mismatch.k3", "gaps.mismatch.ratio_mean", "signature.learned.difference"),
        (
            "Compare a checksum of every tensor in engine and trainer after a sync: lm_head, embeddings, norms, "
            "biases, adapters and experts first.",
            "If an adapter is merged into quantised weights (NF4, int8), sync it unmerged, or merge in bfloat16.",
            "If all tensors agree: restart the engine from the trainer's checkpoint. If the mismatch stays, it is of "
            "precision, and the policy has moved to where it shows.",
        ),
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
        "decimal",
        "log-probs with few decimal places",
        scores.decimal,
        "Log-probs were rounded to a few decimal places, as a text with a fixed format does.",
        ("signature.decimals.column", "signature.decimals.places", "signature.decimals.share"),
        (
            "Look for a format such as %.4f or round(x, 4) between the engine and the trainer, in JSON or a log.",
            "Send log-probs as float32 arrays, or as text with nine digits.",
            'Of prime-rl\'s traces: monitors.file.float_decimals = "None" keeps every digit.',
        ),
        alone=True,
    ),
    Hypothesis(
        "sampling",
        "tokens drawn from another distribution than reported",
        scores.sampling,
        "Sampled tokens are not as improbable as the entropy of the same positions says: they were drawn with a "
        "temperature or a nucleus that neither side's log-probs have.",
        ("calibration.excess", "calibration.share", "calibration.z", "calibration.entropy"),
        (
            "Compare the engine's sampling parameters with what its log-probs are: raw log-probs (vLLM: "
            "logprobs_mode=raw_logprobs) know no temperature, top_p, top_k, min_p or penalty.",
            "Report processed log-probs and divide the trainer's logits by the same temperature; or sample at "
            "temperature 1, top_p 1, top_k off.",
            "If the share is above 0 the sampler is hotter than reported, below 0 colder or cut off; if entropies are "
            "of another policy or temperature than mu, send those of the same forward.",
        ),
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
        "prompt",
        "another prompt",
        scores.prompt,
        "The mismatch is largest where answers begin and fades along them: the two sides see different contexts.",
        ("signature.position.decline", "signature.position.z", "gaps.mismatch.k3", *_OVER_STEPS[:2]),
        (
            "Print the token ids of one prompt as the engine got them and as the trainer has them, and compare.",
            "Look for BOS added twice or not at all, another chat template, a system prompt or images on one side, "
            "prompts cut at another length, and positions that do not start at 0 behind padding.",
        ),
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
        "kv_precision",
        "a coarse KV cache",
        scores.kv_precision,
        "The mismatch grows with the position in an answer: each token reads more of what the engine keeps coarsely.",
        ("signature.position.growth", "signature.position.z", "gaps.mismatch.k3", "gaps.mismatch.ratio_mean", *_PARTS),
        (
            "Set the engine's kv_cache_dtype to auto (bfloat16) for a step and compare; or calibrate its fp8 scales.",
            "If it stays: compare RoPE scaling and position ids, and sliding windows, of both sides at long contexts.",
        ),
    ),
    Hypothesis(
        "engine_internal",
        "an engine whose decode differs from its prefill",
        scores.engine_internal,
        "Most of the mismatch is made within the engine: it gives the same tokens other log-probs when it scores them "
        "in one prefill than when it sampled them one by one.",
        (*_FLOOR, "noise_floor.engine_internal.k3", "noise_floor.cross_engine.k3", "gaps.mismatch.k3"),
        (
            "Check that both are processed alike: prompt log-probs of vLLM are raw, whatever the temperature and top_p "
            "of the sampler, and a prefill after a weight sync is of other weights.",
            "Sample one batch with as many requests at a time as the prefill had, and with batch-invariant kernels, "
            "where the engine has them: what is left is not of the batch's shape.",
            "Set kv_cache_dtype to auto (bfloat16); then switch off prefix caching, cascade attention, CUDA graphs and "
            "speculative decoding, one at a time.",
        ),
    ),
    Hypothesis(
        "garbled",
        "a few garbled sequences",
        scores.garbled,
        "Most of the mismatch is of a few sequences that are wrong from their first token on; the others are right.",
        _FEW,
        (
            "Look at the worst sequences (/worst): decode one, and see whether tokens, log-probs and prompt belong "
            "together.",
            "Look for rows that were swapped when a batch was sorted, padded or gathered, for requests that were "
            "aborted and resumed, and for one GPU or host that all of them come from.",
            "Until it is found mask sequences by their geometric ratio: that drops them and nothing else.",
        ),
    ),
    Hypothesis(
        "sampled_padding",
        "sampled padding that the trainer masks out",
        scores.sampled_padding,
        "Most of the mismatch is of a few sequences that are right up to some token and wrong from there on, as where "
        "an answer contains the pad token and the trainer's attention mask leaves it out.",
        _FEW,
        (
            "Look at the token before the mismatch begins (/worst has its position): is it the pad token, or EOS?",
            "Make attention masks from lengths and not from `tokens != pad`; use a pad token that is never sampled, or "
            "forbid it in the engine (bad_words, logit_bias).",
            "If it is no padding: look for answers that were resumed or spliced there.",
        ),
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
    Hypothesis(
        "unknown",
        "none of the known causes",
        scores.unknown,
        "The mismatch is far more than noise, and shows no mark of a cause that is known here.",
        (
            "gaps.mismatch.k3",
            CRITICAL,
            *_OVER_STEPS,
            "gaps.mismatch.ratio_mean",
            "gaps.mismatch.k1",
            "signature.regression.slope",
            "signature.replica.name",
            "signature.replica.ratio",
            *_FLOOR,
        ),
        (
            "What changed at the step that is named: a restart, a new engine or image, a sync that took long?",
            "Compare the token ids of one prompt on both sides: BOS, chat template, truncation.",
            "Compare a checksum of every tensor in engine and trainer after a sync.",
            "Rescore one batch with the engine's prefill and send it as engine_logprobs: what differs names the part.",
            "Check what the log-probs are: processed or raw, temperature, top_p, soft cap.",
            "Switch off one thing at a time: prefix caching, cascade attention, speculative decoding, fp8.",
            "Send labels (engine, gpu, host), policy_versions and shards, so that more can be told apart.",
        ),
    ),
)
