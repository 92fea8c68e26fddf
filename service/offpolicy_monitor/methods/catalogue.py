"""The catalogue of methods as data: one row a method.

A new method is a row here and a rule in core.rules. Formulas, papers and thresholds: docs/methods.md.
"""

from collections.abc import Mapping
from typing import Final

from offpolicy_monitor.core import rules
from offpolicy_monitor.methods.model import ANY_NUMBER, WEIGHTS, Choice, Method, Threshold

ANY_LEVEL: Final = ("token", "sequence", "geometric")
_OPTIONAL = Threshold(default=None)

METHODS: Final[Mapping[str, Method]] = {
    method.name: method
    for method in (
        Method(
            "truncate", rules.truncate, "weight = clip(r, lower, upper); drops nothing",
            "Yao et al. (TIS); verl, slime",
            "mismatch", ANY_LEVEL, {"lower": Threshold(None, WEIGHTS), "upper": _OPTIONAL},
            bounds=True, passes_level=True, weights=True,
        ),
        Method(
            "mask", rules.mask, "drops where the statistic at that level is outside [lower, upper]",
            "IcePop; Liu et al. (MIS); verl, slime, NeMo-RL, SkyRL",
            "mismatch", ANY_LEVEL,
            {
                "lower": Threshold(None, ANY_NUMBER),
                "upper": Threshold(None, ANY_NUMBER),
                "statistic": Choice(("ratio", "k1", "k2", "k3")),
                "reduce": Choice(("mean", "max", "sum")),
                "kl_tau": _OPTIONAL,
            },
            bounds=True, passes_level=True, two_sided=True,
        ),
        Method(
            "veto", rules.veto, "drops a sequence if any token has r < lower or r > upper", "slime, verl 0.7",
            "mismatch", ("sequence",), {"lower": _OPTIONAL, "upper": _OPTIONAL}, bounds=True,
        ),
        Method(
            "opsm", rules.opsm, "drops a sequence with A < 0 whose mean of -d exceeds delta", "DeepSeek-V3.2",
            "total", ("geometric",), {"delta": Threshold()}, signed=True,
        ),
        Method(
            "ppo_clip", rules.ppo_clip, "drops where A > 0 and r > 1 + upper, or A < 0 and r < 1 - lower",
            "PPO, GRPO (token); GSPO (geometric); RLOO (sequence)",
            "staleness", ANY_LEVEL, {"lower": Threshold(), "upper": Threshold()}, signed=True, passes_level=True,
            two_sided=True,
        ),
        Method(
            "cispo", rules.cispo, "weight = clip(r, 1 - lower, 1 + upper); drops nothing", "MiniMax-M1; slime, SkyRL",
            "staleness", ("token",), {"lower": Threshold(), "upper": Threshold()}, weights=True,
        ),
        Method(
            "dppo", rules.dppo, "drops tokens whose probability moved away too far for the sign of A",
            "DPPO; prime-rl, SkyRL",
            "total", ("token",),
            {
                "divergence": Choice(("tv", "kl")),
                "lower": Threshold(),
                "upper": Threshold(),
                "zero_advantage": Choice(("keep", "negative")),
            },
            signed=True, two_sided=True,
        ),
        Method(
            "ipo", rules.ipo, "drops tokens with |p - q| > threshold", "prime-rl",
            "total", ("token",), {"threshold": Threshold()}, two_sided=True,
        ),
        Method(
            "m2po", rules.m2po, "drops tokens of largest d^2 until the mean d^2 of the rest <= threshold", "M2PO",
            "mismatch", ("token",), {"threshold": Threshold()}, request_wide=True,
        ),
        Method(
            "trm", rules.trm, "drops a sequence if its largest k2 > max or its mean k3 > mean", "TRM",
            "total", ("sequence",), {"max": Threshold(), "mean": Threshold()},
        ),
        Method(
            "kpop", rules.kpop, "drops tokens whose larger binary KL exceeds phi", "AReaL",
            "total", ("token",), {"phi": Threshold()},
        ),
        Method(
            "seq_error", rules.seq_error, "drops a sequence whose mean exp|d| exceeds the threshold", "NeMo-RL",
            "mismatch", ("sequence",), {"threshold": Threshold()},
        ),
    )
}  # fmt: skip
