"""Scores: how well each known cause fits the evidence, from 0 to 1; at one half it beats plain noise.

A score is a share of the mismatch that the cause explains, set against the share from which it is believed, and is 0
until chance is ruled out by a z-score. Missing evidence scores 0. Thresholds were chosen on generated data of training
seeds (tests/diagnosis); they are proposals, not measurements of production runs.
"""

import math
from typing import Final

from offpolicy_monitor.diagnosis.evidence import JUMP, Evidence

#: A z-score below the first counts for nothing, above the second in full.
DOUBTFUL: Final = 4.0
CERTAIN: Final = 8.0
#: Fewer tokens than this show no pattern of values.
FEWEST: Final = 30
#: Clean batches leave an asymmetry of a few thousandths and score for that alone less than 0.1, so less z will do.
SHIFT_Z: Final = 2.5
#: The z of lags and replicas allows for sequences that differ; one clean batch of 150 has more than 2.6.
CLUSTERED_Z: Final = 2.5
#: Sequences that differ by chance make a share of some tenths: less than a half of the mismatch is not blamed on age.
CHANCE_SHARE: Final = 0.4
#: Of clean batches with experts the z of the trend stays below 3.1 in 80, as of independent tokens.
ROUTED_Z: Final = 1.75
#: The z of a tail flips signs at random: ten tokens of one sign, which chance gives once in 500, have at most 3.2.
SIGNS_Z: Final = 2.6
#: Rise of k3 that is a jump and no drift; vime's issue 64 has 3 in thirty steps.
LEAST_JUMP: Final = 3.0
#: Of a hotter engine the slope explains 0.85 to 1.2 of what the tail does; of a broken tail less than 0.6.
HOTTER: Final = 0.7


def believed(share: float, least: float, z: float) -> float:
    """share / (share + least), so that `least` scores one half; scaled down where z leaves doubt."""
    if not share > 0:
        return 0.0
    return share / (share + least) * min(1.0, max(0.0, (z - DOUBTFUL) / (CERTAIN - DOUBTFUL)))


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
    spread = 1 + evidence["gaps.mismatch.chi2"] - (1 - missing) ** 2
    error = math.sqrt(max(spread, 1e-18) / evidence["gaps.mismatch.tokens"])
    return believed(missing / size, 0.2, missing / error) * (1 - shifted(evidence))


def temperature(evidence: Evidence) -> float:
    """log a runs along log b with a slope other than 1, and the tail does not contradict it."""
    share, z = evidence.get("signature.regression.share", 0.0), evidence.get("signature.regression.z", 0.0)
    against = 0.0 if _tail_follows_slope(evidence) else _tail(evidence)
    return believed(share, 0.1, z) * (1 - shifted(evidence)) * (1 - against)


def off_by_one(evidence: Evidence) -> float:
    """log a correlates with a neighbour's log b more than with the other neighbour's."""
    return shifted(evidence)


def shifted(evidence: Evidence) -> float:
    """The score of a shift: others show on shifted data too, and defer to it."""
    asymmetry = evidence.get("signature.neighbours.asymmetry", 0.0)
    return believed(asymmetry, 0.05, SHIFT_Z * evidence.get("signature.neighbours.z", 0.0))


def stale_weights(evidence: Evidence) -> float:
    """d^2 grows with version lag, or one replica's is larger than the others', or k3 jumps and stays.

    Any bug that begins between two steps makes k3 jump and stay; where tokens say which it is, the jump says nothing.
    """
    found = max(_sure(evidence, "signature.lag"), _sure(evidence, "signature.replica"), _lasting(evidence))
    others = (shifted(evidence), copied(evidence), first_token(evidence))
    return found * math.prod(1 - other for other in others)


def _sure(evidence: Evidence, mark: str) -> float:
    share, z = evidence.get(f"{mark}.share", 0.0), evidence.get(f"{mark}.z", 0.0)
    return believed(share - CHANCE_SHARE, 0.15, CLUSTERED_Z * z)


def _lasting(evidence: Evidence) -> float:
    jump = evidence.get(JUMP, 1.0)
    if jump < LEAST_JUMP:
        return 0.0
    causes = (temperature, top_p, quantised, low_probability_tail, routing)
    return believed(1 - 1 / jump, 0.3, CERTAIN) * math.prod(1 - cause(evidence) for cause in causes)


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


def first_token(evidence: Evidence) -> float:
    """First tokens hold most of the second moment, and far more than their share of tokens."""
    share = evidence.get("signature.first_token.second_moment_share", 0.0)
    excess = share - 10 * evidence.get("signature.first_token.token_share", 1.0)
    return believed(max(0.0, excess), 0.2, CERTAIN) * (1 - shifted(evidence))


def low_probability_tail(evidence: Evidence) -> float:
    """Tokens with mu < 0.01 hold most of k3, the trainer is below the engine on them, and no temperature says so."""
    explained = temperature(evidence) if _tail_follows_slope(evidence) else 0.0
    return _tail(evidence) * (1 - shifted(evidence)) * (1 - explained)


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
    """What is left where no cause is believed more than one half."""
    return 1 - max(score(evidence) for score in CAUSES)


CAUSES: Final = (
    top_p,
    temperature,
    off_by_one,
    stale_weights,
    copied,
    quantised,
    first_token,
    low_probability_tail,
    routing,
)
