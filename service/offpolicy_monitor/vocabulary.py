"""Names and numbers that every part shares, each said once. Depends on nothing, so that a trainer may import it."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

#: Log-probs of the sampled tokens as they are sent: log mu of the engine, log pi_old of the trainer before the update,
#: log pi of the trainer now.
LOGPROBS: Final = ("sampling_logprobs", "old_logprobs", "logprobs")
SAMPLING, OLD, CURRENT = LOGPROBS

#: Log-probs of the same tokens, computed once more: by a prefill of the engine, and by the trainer for pi_old.
RESCORED: Final = ("engine_logprobs", "old_logprobs_repeat")
ENGINE, REPEAT = RESCORED

#: Log of the mass that a policy of the trainer gives to the tokens that the sampler chose among, by its log-probs.
SUPPORTS: Final[Mapping[str, str]] = {OLD: "old_support_logprobs", CURRENT: "support_logprobs"}

#: Expert ids that the routers of the same three policies chose, in their order.
EXPERT_IDS: Final = ("sampling_experts", "old_experts", "experts")

#: mismatch = log pi_old - log mu; staleness = log pi - log pi_old; total, the sum of both halves, = log pi - log mu.
Half = Literal["mismatch", "staleness"]
Gap = Literal[Half, "total"]
HALVES: Final[tuple[str, ...]] = get_args(Half)
GAPS: Final[tuple[str, ...]] = get_args(Gap)
#: What a rule of alerts looks at: one gap, or the data itself.
Judged = Literal[Gap, "data"]
#: gap -> the two log-probs of its d = a - b: numerator and denominator of the ratio exp(d).
GAP_LOGPROBS: Final[Mapping[str, tuple[str, str]]] = dict(
    zip(GAPS, ((OLD, SAMPLING), (CURRENT, OLD), (CURRENT, SAMPLING)), strict=True)
)

#: Signs of A as what-if cells name them: `mixed` are sequences whose tokens differ, `unknown` is without advantages.
SIGNS: Final = ("negative", "zero", "positive", "mixed", "unknown")
#: Their indices.
NEGATIVE, ZERO, POSITIVE, MIXED, UNKNOWN = range(len(SIGNS))
#: Signs of the advantage of one token, and what stands for one without.
TOKEN_SIGNS: Final = SIGNS[NEGATIVE : POSITIVE + 1]
UNKNOWN_SIGN: Final = SIGNS[UNKNOWN]

#: log mu of 0 says that the token was certain, or alone in a nucleus, which holds half and more where top_p is one half
#: or more. Where the trainer's log-prob is below this it was neither: mu was filled in.
CERTAIN_LOGPROB: Final = -0.7

#: The method that is shown, tried and told of where a run names no correction.
STANDARD_METHOD: Final = "opsm"

#: What is normal for a run: alerts have thresholds for each. The first one holds where a run has named none.
Profile = Literal["dense_bf16", "moe_bf16", "fp8", "fp4", "bitwise"]
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)

#: The advice to a trainer on an update, from the best to the worst.
VERDICTS: Final = ("accept", "warn", "skip")

#: The score from which a cause of the mismatch is believed, and named: from there it beats plain noise.
BELIEVED: Final = 0.5

#: The quantiles that are answered of log-ratios.
QUANTILES: Final = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)

#: The largest version of a policy: versions and their differences fit 64 bits.
LARGEST_VERSION: Final = 1 << 62

#: What a run may be called, as a regular expression that fits the whole name.
RUN_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"

#: What labels, ids and names of rollouts may be made of, as a regular expression that fits the whole text. PostgreSQL
#: has no text with NUL, and no other control character, end of a line, turn of the direction of text (U+202E, as
#: one) or sign that is not seen is shown to anybody, so that a text is what it looks like. Joiners of letters (U+200C,
#: U+200D) are left: several scripts need them.
TEXT: Final = (
    r"^[^\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]*$"
)
#: What a text must be, for a refusal.
TEXT_MUST: Final = "must hold no control character, and none that is invisible or turns text around"

#: Ratios at which trainers mask and clip by default; histograms are cut there, so that counts beyond them are exact.
RATIO_THRESHOLDS: Final = (0.5, 0.8, 1.2, 1.28, 2.0, 5.0)
#: The argument of an exponential is clamped to +- this; float32 overflows above 88.7. Each act is counted.
EXPONENT_CLAMP: Final = 80.0
#: The quantile of |p - q| of a sequence that CPPO's budget for its prefixes is.
DRIFT_QUANTILE: Final = 0.9
#: The clamp that defines chi2 and ess: w = exp(clip(d, +-20)). It is part of the definition and is not counted.
WEIGHT_CLAMP: Final = 20.0
