"""Scores: how well each known cause fits the evidence, from 0 to 1; at one half it beats plain noise.

A score is a share of the mismatch that the cause explains, set against the share from which it is believed, and is 0
until chance is ruled out by a z-score. Missing evidence scores 0. Thresholds were chosen on generated data of training
seeds (tests/diagnosis); they are proposals, not measurements of production runs.
"""

import math
from typing import Final

from offpolicy_monitor.diagnosis import few as of_few
from offpolicy_monitor.diagnosis.evidence import CRITICAL, WARNING, Evidence
from offpolicy_monitor.diagnosis.over_steps import BEFORE, GROWTH, GROWTH_Z, JUMP, LEAST_JUMP
from offpolicy_monitor.diagnosis.over_steps import FEWEST as FEWEST_STEPS

#: A z-score below the first counts for nothing, above the second in full.
DOUBTFUL: Final = 4.0
CERTAIN: Final = 8.0
#: Fewer tokens than this show no pattern of values.
FEWEST: Final = 30
#: Two sides that agree but for some d have the same neighbours but for that d, so that the z of what is no shift is
#: below 1.3 in 200 batches of other faults of the generators; less z will do.
SHIFT_Z: Final = 3.0
#: Of sum d^2, the share that a shift explains of which nothing is believed, and all: shifts have 0.9 and more, those of
#: answers of five tokens 0.4, for what comes in at their ends is of no answer; a missing BOS has up to 0.3, with a z of
#: 19 (CTranslate2).
SHIFT_SHARE: Final = (0.35, 0.65)
#: An asymmetry that needs no such share: half of the answers are shifted, a missing BOS has up to 0.2.
SHIFT_ALONE: Final = (0.3, 0.5)
#: The z of lags and replicas allows for sequences that differ; one clean batch of 150 has more than 2.6.
CLUSTERED_Z: Final = 2.5
#: Sequences that differ by chance make a share of some tenths: less than a half of the mismatch is not blamed on age.
CHANCE_SHARE: Final = 0.4
#: Of clean batches with experts the z of the trend stays below 3.1 in 80, as of independent tokens.
ROUTED_Z: Final = 1.75
#: The z of a tail flips signs at random: ten tokens of one sign, which chance gives once in 500, have at most 3.2.
SIGNS_Z: Final = 2.6
#: Mean k3 below which growth means nothing: MismatchDrift is silent below it, too.
SMALL_K3: Final = 2.5e-4
#: Of k3, the share that has come in the course of a window in which it doubled: healthy runs drift that far.
DRIFT_SHARE: Final = 0.5
#: Missing from the mean ratio where an engine has long been left behind.
FAR_AWAY: Final = 0.02
#: A difference in d between rewarded answers and others, over mean |d|, and its z: an engine whose noise grows has some
#: hundredths, since it does worse; one that takes no weights has 0.2 to 0.4 (the demo's).
LEARNED, LEARNED_Z = 0.12, 4.0
#: The z of the trend of k3 allows for figures of a run that go together from step to step.
TREND_Z: Final = 3.0
#: More of the sequences than this are not few; one always is.
FEW: Final = 0.05
#: A sequence that is wrong from its beginning has there this part of the d^2 that is expected there, or more; one that
#: is right until some token in its midst has no more than the other.
FROM_BEGINNING, IN_MIDST = 0.5, 0.2
#: Entropies of another step's policy, or of coarse logits, are off by this share of themselves.
CALIBRATED: Final = 0.02
#: Text alone makes early tokens, or late ones, somewhat noisier than the others.
TEXT_SHARE: Final = 0.3
#: Of the second moment of the mismatch, the share from which on most of it is of one part.
MOST: Final = 0.5
#: Fewer tokens than this say nothing of what rescoring them changed.
FEWEST_RESCORED: Final = 100
#: The trainer's own second moment over the mismatch's from which on the mismatch is at the trainer's floor: as much as
#: two passes with the same noise differ by, the engine's being one of them.
AT_THE_FLOOR: Final = 1.0
#: Of a hotter engine the slope explains 0.85 to 1.2 of what the tail does; of a broken tail less than 0.6.
HOTTER: Final = 0.7


def believed(share: float, least: float, z: float) -> float:
    """share / (share + least), so that `least` scores one half; scaled down where z leaves doubt."""
    if not share > 0:
        return 0.0
    return share / (share + least) * _between(z, DOUBTFUL, CERTAIN)


def _between(value: float, none: float, full: float) -> float:
    """0 up to `none`, 1 from `full` on, and a line between them."""
    return min(1.0, max(0.0, (value - none) / (full - none)))


def top_p(evidence: Evidence) -> float:
    """mean r below 1: the sampler never draws what it cut off, so that r sums to the kept mass only.

    The share is (1 - mean r) / mean |d|: 1 where every token is off by the kept mass, 0 where d is noise around it.
    """
    size = evidence.get("gaps.mismatch.abs_log_ratio_mean", 0.0)
    missing = 1 - evidence.get("gaps.mismatch.ratio_mean", 1.0)
    if not size > 0:
        return 0.0
    if evidence.get("gaps.mismatch.k1", 0.0) <= 2 * evidence.get("gaps.mismatch.k3", 0.0):
        return 0.0
    found = believed(missing / size, 0.2, _missing_z(evidence))
    return found * (1 - shifted(evidence)) * (1 - growing(evidence)) * (1 - few(evidence))


def _missing_z(evidence: Evidence) -> float:
    """How many standard errors the mean ratio is below 1."""
    missing = 1 - evidence.get("gaps.mismatch.ratio_mean", 1.0)
    spread = 1 + evidence.get("gaps.mismatch.chi2", 0.0) - (1 - missing) ** 2
    return missing / math.sqrt(max(spread, 1e-18) / evidence.get("gaps.mismatch.tokens", 1.0))


def temperature(evidence: Evidence) -> float:
    """log a runs along log b with a slope other than 1, the tail does not contradict it, and it does not grow.

    Weights that are old sharpen or flatten a policy as a temperature does, but ever more; another context does so where
    answers begin.
    """
    share, z = evidence.get("signature.regression.share", 0.0), evidence.get("signature.regression.z", 0.0)
    against = 0.0 if _tail_follows_slope(evidence) else _tail(evidence)
    found = believed(share, 0.1, z) * (1 - shifted(evidence)) * (1 - against) * (1 - internal(evidence))
    return found * math.prod(1 - other(evidence) for other in (growing, _falling, few))


def off_by_one(evidence: Evidence) -> float:
    """log a correlates with a neighbour's log b more than with the other neighbour's."""
    return shifted(evidence)


def shifted(evidence: Evidence) -> float:
    """The score of a shift: others show on shifted data too, and defer to it.

    One neighbour correlates more than the other, and by as much as the mismatch is large; or by so much that half of
    the tokens must have its log-prob. Where contexts differ one may correlate more by where a text's certain tokens
    are, and by far less than a shift of that mismatch would need.
    """
    forward, backward = (max(0.0, evidence.get(f"signature.neighbours.{side}", 0.0)) for side in ("next", "previous"))
    asymmetry = abs(forward - backward)
    explained = _between(evidence.get("signature.neighbours.share", 0.0), *SHIFT_SHARE)
    found = believed(asymmetry, 0.02, SHIFT_Z * evidence.get("signature.neighbours.z", 0.0))
    return found * max(explained, _between(asymmetry, *SHIFT_ALONE))


def _falling(evidence: Evidence) -> float:
    """How surely d^2 falls with the position: more than text alone makes it."""
    share, z = evidence.get("signature.position.decline", 0.0), evidence.get("signature.position.z", 0.0)
    return believed(share - TEXT_SHARE, 0.15, -CLUSTERED_Z * z)


def stale_weights(evidence: Evidence) -> float:
    """Some tokens are older than others; or k3 jumps and grows from there on.

    A jump alone may be anything that begins between two steps, and one of a run's first steps is no jump: before the
    first sync all weights are the same. Where advantages are sent the trainer must have learned what the engine has
    not: noise that grows does not know them. Without a jump an engine that has long kept its weights shows in the mean
    ratio: it never draws what the policy has come to say.
    """
    found = older(evidence)
    jumped = evidence.get(JUMP, 1.0) >= LEAST_JUMP and evidence[BEFORE] >= FEWEST_STEPS and _learned(evidence)
    if jumped or _far_away(evidence):
        found = max(found, growing(evidence))
    others = (shifted(evidence), copied(evidence), first_token(evidence), few(evidence))
    return found * math.prod(1 - other for other in others)


def older(evidence: Evidence) -> float:
    """d^2 grows with version lag, or one replica's is larger than the others'."""
    return max(_sure(evidence, "signature.lag"), _sure(evidence, "signature.replica"))


def _sure(evidence: Evidence, mark: str) -> float:
    share, z = evidence.get(f"{mark}.share", 0.0), evidence.get(f"{mark}.z", 0.0)
    return believed(share - CHANCE_SHARE, 0.15, CLUSTERED_Z * z)


def _learned(evidence: Evidence) -> bool:
    """Whether rewarded answers are likelier to the trainer than to the engine; true where nobody can tell."""
    size, z = evidence.get("signature.learned.difference", math.inf), evidence.get("signature.learned.z", math.inf)
    return size > LEARNED and z > LEARNED_Z


def _far_away(evidence: Evidence) -> bool:
    missing = 1 - evidence.get("gaps.mismatch.ratio_mean", 1.0)
    return missing > FAR_AWAY and _missing_z(evidence) > CERTAIN


def growing(evidence: Evidence) -> float:
    """k3 grows from step to step, to more than twice what it was, and no mark of tokens says why."""
    if evidence.get("gaps.mismatch.k3", 0.0) < SMALL_K3 or evidence.get(GROWTH, 1.0) <= 1:
        return 0.0
    found = believed(1 - 1 / evidence[GROWTH] - DRIFT_SHARE, 0.15, TREND_Z * evidence[GROWTH_Z])
    causes = (shifted, copied, quantised, first_token, _falling, routing)
    return found * math.prod(1 - cause(evidence) for cause in causes)


def partial_sync(evidence: Evidence) -> float:
    """k3 grows without a jump, as it does where a part of the weights is left behind from the first step on.

    Where improbable tokens hold it, the trainer must have learned what the engine has not.
    """
    found = growing(evidence) * (1 - internal(evidence)) * (1 - _tail(evidence) * (1 - _left_behind(evidence)))
    return found * (1 - stale_weights(evidence)) * (1 - few(evidence))


def _left_behind(evidence: Evidence) -> float:
    """How surely weights stay behind: k3 grows by what the trainer is known to have learned."""
    return growing(evidence) if "signature.learned.z" in evidence and _learned(evidence) else 0.0


def copied(evidence: Evidence) -> float:
    """Log-probs equal to the bit where probability leaves room for them to differ."""
    if evidence.get("signature.uncertain.tokens", 0) < FEWEST:
        return 0.0
    return believed(max(0.0, evidence["signature.uncertain.exact_fraction"] - 0.25), 0.25, CERTAIN)


def quantised(evidence: Evidence) -> float:
    """Values have far fewer bits than float32, or are multiples of a step that coarse."""
    if evidence.get("signature.grid.tokens", 0) < FEWEST:
        return 0.0
    return believed(max(0.0, evidence["signature.grid.share"] - 0.1), 0.1, CERTAIN)


def decimal(evidence: Evidence) -> float:
    """Values have at most four decimal places, and are not multiples of a power of two, which may have few as well."""
    if evidence.get("signature.decimals.tokens", 0) < FEWEST:
        return 0.0
    found = believed(max(0.0, evidence["signature.decimals.share"] - 0.1), 0.1, CERTAIN)
    return found * (1 - quantised(evidence))


def sampling(evidence: Evidence) -> float:
    """Sampled tokens are more probable to mu than its own entropy says, or less: they were drawn from another policy.

    Where the ratios show the temperature or the nucleus, it is those: then the reported log-probs have it too. What the
    mismatch may explain, where entropies are the trainer's, does not count (_unexplained).
    """
    z = abs(evidence.get("calibration.z", 0.0))
    share = abs(evidence.get("calibration.share", 0.0)) * _unexplained(evidence, z)
    found = believed(share - CALIBRATED, 0.02, z) * (1 - _tail(evidence))
    return found * math.prod(1 - cause(evidence) for cause in (shifted, top_p, temperature, first_token, prompt))


def _unexplained(evidence: Evidence, z: float) -> float:
    """The part of an excess of calibration, of this z, that is beyond what mu's distance from the trainer's pi allows.

    Entropies are mostly pi's. By Cauchy and Schwarz |sum (mu - pi) log pi| is at most sqrt(chi2 var(log pi)) at a
    position, and chi2 is about 2 k3; z is the excess over sqrt(var / tokens). k3 below 0 is of log-ratios whose
    exponential was clamped, which allow anything.
    """
    k3, tokens = evidence.get("gaps.mismatch.k3", 0.0), evidence.get("calibration.tokens", 0.0)
    return max(0.0, 1 - math.sqrt(2 * k3 * tokens) / z) if z > 0 and k3 >= 0 else 0.0


def first_token(evidence: Evidence) -> float:
    """First tokens hold most of the second moment, and far more than their share of tokens."""
    share = evidence.get("signature.first_token.second_moment_share", 0.0)
    excess = share - 10 * evidence.get("signature.first_token.token_share", 1.0)
    return believed(max(0.0, excess), 0.2, CERTAIN) * (1 - shifted(evidence))


def prompt(evidence: Evidence) -> float:
    """d^2 is large at the beginning and falls with the position, further than the first token: another context."""
    causes = (shifted, copied, first_token, older, few, internal)
    return _falling(evidence) * math.prod(1 - cause(evidence) for cause in causes)


def kv_precision(evidence: Evidence) -> float:
    """d^2 grows with the position: each token reads more of a coarse cache than the one before it.

    A cache does not know what was rewarded: where the trainer is known to have learned what the engine has not, it is
    of weights.
    """
    if "signature.learned.z" in evidence and _learned(evidence):
        return 0.0
    share, z = evidence.get("signature.position.growth", 0.0), evidence.get("signature.position.z", 0.0)
    found = believed(share - TEXT_SHARE, 0.15, CLUSTERED_Z * z)
    return found * math.prod(1 - cause(evidence) for cause in (shifted, copied, routing, older, few))


def engine_internal(evidence: Evidence) -> float:
    """Most of the mismatch is made within the engine, and no mark says by what; below the run's warning it is noise."""
    if evidence.get("gaps.mismatch.k3", 0.0) <= evidence.get(WARNING, math.inf):
        return 0.0
    causes = (shifted, copied, quantised, decimal, top_p, older, kv_precision, few)
    return internal(evidence) * math.prod(1 - cause(evidence) for cause in causes)


def internal(evidence: Evidence) -> float:
    """Decode and prefill of the engine differ by most of the mismatch: neither weights nor prompts of two programs,
    nor their temperatures, can be what it is of."""
    if evidence.get("noise_floor.engine_internal.tokens", 0) < FEWEST_RESCORED or at_the_floor(evidence):
        return 0.0
    return believed(evidence.get("noise_floor.attribution.engine_internal", 0.0) - MOST, 0.1, CERTAIN)


def at_the_floor(evidence: Evidence) -> bool:
    """Whether two passes of the trainer differ by as much as engine and trainer do."""
    enough = evidence.get("noise_floor.trainer.tokens", 0) >= FEWEST_RESCORED
    return enough and evidence.get("noise_floor.trainer.of_mismatch", 0.0) >= AT_THE_FLOOR


def few(evidence: Evidence) -> float:
    """Few sequences hold most of k3: those that others speak of are not the run's."""
    if evidence.get(of_few.COUNT, 0) > 1 and evidence[of_few.PART] > FEW:
        return 0.0
    found = believed(evidence.get(of_few.SHARE, 0.0) - CHANCE_SHARE, 0.15, CERTAIN)
    return found * (1 - shifted(evidence)) * (1 - first_token(evidence))


def garbled(evidence: Evidence) -> float:
    """Few sequences hold most of k3, and are wrong from their beginning."""
    return few(evidence) * (1 - _begins_late(evidence))


def sampled_padding(evidence: Evidence) -> float:
    """Few sequences hold most of k3, and are right until some token in their midst."""
    return few(evidence) * _begins_late(evidence)


def _begins_late(evidence: Evidence) -> float:
    return 1 - _between(evidence.get(of_few.EARLY, math.inf), IN_MIDST, FROM_BEGINNING)


def low_probability_tail(evidence: Evidence) -> float:
    """Tokens with mu < 0.01 hold most of k3, the trainer is below the engine on them, and neither a temperature nor
    weights that stay behind say so."""
    explained = temperature(evidence) if _tail_follows_slope(evidence) else 0.0
    others = (shifted(evidence), explained, internal(evidence), _left_behind(evidence))
    return _tail(evidence) * math.prod(1 - other for other in others)


def _tail(evidence: Evidence) -> float:
    z = -SIGNS_Z * evidence.get("signature.low_probability.z", 0.0)
    return believed(_tail_share(evidence), 0.1, z)


def _tail_share(evidence: Evidence) -> float:
    """The tail's share of k3, scaled by how far the trainer is below the engine on all of it alike."""
    direction = -evidence.get("signature.low_probability.direction", 0.0)
    return evidence.get("signature.low_probability.k3_share", 0.0) * max(0.0, direction) ** 2


def _tail_follows_slope(evidence: Evidence) -> bool:
    """Whether the tail is off the way a temperature has it: by the slope's sign, and no more than the middle is."""
    slope, share = evidence.get("signature.regression.slope", 1.0), evidence.get("signature.regression.share", 0.0)
    if evidence.get("signature.low_probability.direction", 0.0) >= 0:
        return slope <= 1
    return slope > 1 and share >= HOTTER * _tail_share(evidence)


def routing(evidence: Evidence) -> float:
    """d^2 of a token grows with the number of its layers whose experts differ."""
    trend = "routing.mismatch.trend"
    share, z = evidence.get(f"{trend}.share", 0.0), evidence.get(f"{trend}.z", 0.0)
    return believed(share, 0.3, ROUTED_Z * z) * (1 - shifted(evidence))


def noise(evidence: Evidence) -> float:
    """What is left where no cause is believed more than one half, as long as it is no more than noise can be."""
    return 0.0 if _beyond_noise(evidence) else _left(evidence)


def unknown(evidence: Evidence) -> float:
    """What is left where it is more than noise can be."""
    return _left(evidence) if _beyond_noise(evidence) else 0.0


def _left(evidence: Evidence) -> float:
    return 1 - max(score(evidence) for score in CAUSES)


def _beyond_noise(evidence: Evidence) -> bool:
    """Whether k3 is beyond the critical value of the run's profile, or jumped, stayed, and is beyond its warning.

    What the trainer's own passes differ by is noise, however much it is.
    """
    if at_the_floor(evidence):
        return False
    k3 = evidence.get("gaps.mismatch.k3", 0.0)
    jumped = evidence.get(JUMP, 1.0) >= LEAST_JUMP
    return k3 > evidence.get(CRITICAL, math.inf) or (jumped and k3 > evidence.get(WARNING, math.inf))


CAUSES: Final = (
    top_p,
    temperature,
    off_by_one,
    stale_weights,
    partial_sync,
    copied,
    quantised,
    decimal,
    sampling,
    first_token,
    prompt,
    low_probability_tail,
    kv_precision,
    engine_internal,
    routing,
    garbled,
    sampled_padding,
)
