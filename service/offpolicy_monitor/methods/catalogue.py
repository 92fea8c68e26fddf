"""The catalogue of methods as data: one row per method, and nothing else tells methods apart in what is measured.

Others name them: presets, the rows that run; options, the settings that frameworks write a row as; the vocabulary,
which of them is shown where a run names none; and the alerts, how much the method in use may mask.
A row's forms say what is compared, as curves (methods.curve): the rule that runs, its bands and its what-if all follow.
Formulas of the scores, and what a row may not say: docs/methods.md.
"""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

from offpolicy_monitor.methods import checks
from offpolicy_monitor.methods.curve import (
    GROWTH,
    OVER_ONE,
    PLAIN,
    SECOND_MOMENT,
    SQUARE,
    UNDER_ONE,
    Curve,
    away_bounds,
    exceeds,
    falls,
    negated_bounds,
    outside,
    outward,
    plain_bounds,
    ratio_bounds,
)
from offpolicy_monitor.methods.curve import RATIO as OF_RATIO
from offpolicy_monitor.methods.model import ANY_NUMBER, SHARE, WEIGHTS, Choice, Form, Method, Threshold

ANY_LEVEL: Final = ("token", "sequence", "geometric")
#: What CPPO's authors train with where a row does not say: a prefix's least budget, and the weight of a last token.
DRIFT_BUDGET: Final = 0.02
DRIFT_WEIGHT: Final = 0.8
_OPTIONAL: Final = Threshold(default=None)
_BOTH: Final = {"lower": Threshold(), "upper": Threshold()}


def _k_form(curves: dict[str, Curve]) -> Form:
    return Form(curves, lowest=-float("inf"))


METHODS: Final[Mapping[str, Method]] = {
    method.name: method
    for method in (
        Method(
            "truncate", "weight `clip(r, lower, upper)` at `level`; drops nothing",
            "TIS: Yao et al. 2025, *Your Efficient RL Framework Secretly Brings You Off-Policy RL Training*; verl, "
            "slime, TRL",
            "mismatch", ANY_LEVEL, {"lower": Threshold(None, WEIGHTS), "upper": _OPTIONAL},
            {(level, ""): Form(ratio_bounds(level)) for level in ANY_LEVEL},
            reweights=True, check=checks.bounds,
        ),
        Method(
            "mask",
            "drops where the `statistic` (`ratio`, `k1`, `k2`, `k3`) at `level` leaves [lower, upper]; a sequence's k "
            "is `reduce`d by mean, max or sum; `kl_tau` adds the squared log-ratio penalty over kept and over all "
            "tokens",
            "MIS: Liu et al. 2025, *When Speed Kills Stability*; IcePop: Ling team, arXiv 2510.18855; verl, NeMo-RL, "
            "SkyRL",
            "mismatch", ANY_LEVEL,
            {
                "lower": Threshold(None, ANY_NUMBER),
                "upper": Threshold(None, ANY_NUMBER),
                "statistic": Choice(("ratio", "k1", "k2", "k3"), "Of `mask`: ratio, k1, k2 or k3."),
                "reduce": Choice(("mean", "max", "sum"), "Of k1, k2 and k3 of sequences: mean, max or sum."),
                "kl_tau": _OPTIONAL,
            },
            {
                **{(level, "ratio"): Form(ratio_bounds(level), sides=True, everywhere=True) for level in ANY_LEVEL},
                ("token", "k1"): _k_form(negated_bounds("log_ratio")),
                ("geometric", "k1"): _k_form(negated_bounds("log_geometric_ratio")),
                ("sequence", "k1"): _k_form(negated_bounds("log_geometric_ratio")),
                ("sequence", "k1:sum"): _k_form(negated_bounds("log_product_ratio")),
                ("sequence", "k1:max"): _k_form(negated_bounds("log_ratio_min")),
                ("token", "k2"): Form(
                    {**plain_bounds("log_ratio_abs", SQUARE), **outside("upper", "log_ratio", SQUARE)}
                ),
                ("geometric", "k2"): Form(plain_bounds("k2_mean")),
                ("sequence", "k2"): Form(plain_bounds("k2_mean")),
                ("sequence", "k2:sum"): Form(plain_bounds("k2_sum")),
                ("sequence", "k2:max"): Form(plain_bounds("log_ratio_abs_max", SQUARE, kept=True)),
                ("token", "k3"): Form(plain_bounds("k3")),
                ("geometric", "k3"): Form(plain_bounds("k3_mean", kept=True)),
                ("sequence", "k3"): Form(plain_bounds("k3_mean", kept=True)),
                ("sequence", "k3:sum"): Form(plain_bounds("k3_sum")),
                ("sequence", "k3:max"): Form(plain_bounds("k3_max")),
            },
            check=checks.mask,
        ),
        Method(
            "veto", "drops a sequence if any token has r < lower or r > upper", "slime; verl 0.7",
            "mismatch", ("sequence",), {"lower": _OPTIONAL, "upper": _OPTIONAL},
            {
                ("sequence", ""): Form(
                    {
                        "lower": Curve("log_ratio_min", False, OF_RATIO),
                        "upper": Curve("log_ratio_max", True, OF_RATIO),
                    }
                )
            },
            check=checks.bounds,
        ),
        Method(
            "opsm", "drops a sequence with A < 0 and -L > delta", "DeepSeek-V3.2, arXiv 2512.02556",
            "total", ("geometric",), {"delta": Threshold()},
            {("geometric", ""): Form(falls("delta", "log_geometric_ratio"))},
            title="OPSM",
        ),
        Method(
            "ppo_clip", "drops where A > 0 and r > 1 + upper, or A < 0 and r < 1 - lower",
            "PPO, arXiv 1707.06347 and GRPO, arXiv 2402.03300 (token); GSPO, arXiv 2507.18071 (geometric); DAPO, arXiv "
            "2503.14476",
            "staleness", ANY_LEVEL, _BOTH,
            {
                (level, ""): Form(ratio_bounds(level, UNDER_ONE, OVER_ONE, signed=True), sides=True)
                for level in ANY_LEVEL
            },
            kinds={"token": "grpo", "geometric": "gspo"},
        ),
        Method(
            "cispo", "weight `clip(r, 1 - lower, 1 + upper)`; drops nothing", "MiniMax-M1, arXiv 2506.13585",
            "staleness", ("token",), _BOTH, {("token", ""): Form(ratio_bounds("token", UNDER_ONE, OVER_ONE))},
            reweights=True,
        ),
        Method(
            "dppo",
            "drops where A > 0 and p - q > upper, or A < 0 and p - q < -lower (`tv`); or the binary KL(q, p) exceeds "
            "its threshold and the move is away (`kl`)",
            "arXiv 2602.04879; prime-rl, SkyRL",
            "total", ("token",),
            {
                "divergence": Choice(("tv", "kl"), "Of `dppo`: tv or kl."),
                **_BOTH,
                "zero_advantage": Choice(("keep", "negative")),
            },
            {
                ("token", "tv"): Form(away_bounds("probability_difference"), sides=True),
                ("token", "kl"): Form(away_bounds("kl_away"), sides=True),
                ("token", "tv:negative"): Form(
                    away_bounds("probability_difference", zero_is_negative=True), sides=True
                ),
                ("token", "kl:negative"): Form(away_bounds("kl_away", zero_is_negative=True), sides=True),
            },
        ),
        Method(
            "ipo", "drops tokens with abs(p - q) > threshold", "prime-rl",
            "total", ("token",), {"threshold": Threshold()},
            {("token", ""): Form(outside("threshold", "probability_difference"), sides=True)},
        ),
        Method(
            "m2po",
            "drops the tokens of largest d^2 among all of the request until the mean d^2 of the rest is at most the "
            "threshold",
            "arXiv 2510.01161",
            "mismatch", ("token",), {"threshold": Threshold()},
            {("token", ""): Form(outside("threshold", "log_ratio", SECOND_MOMENT))},
        ),
        Method(
            "trm", "drops a sequence if its largest k2 > max or its mean k3 > mean", "arXiv 2512.23075",
            "total", ("sequence",), {"max": Threshold(), "mean": Threshold()},
            {
                ("sequence", ""): Form(
                    {**exceeds("max", "log_ratio_abs_max", SQUARE), **exceeds("mean", "k3_mean")}
                )
            },
        ),
        Method(
            "kpop", "drops tokens whose larger binary KL of the two directions exceeds phi", "AReaL",
            "total", ("token",), {"phi": Threshold()}, {("token", ""): Form(exceeds("phi", "kl_larger"))},
        ),
        Method(
            "seq_error", "drops a sequence whose mean exp(abs d) exceeds the threshold", "NeMo-RL",
            "mismatch", ("sequence",), {"threshold": Threshold()},
            {("sequence", ""): Form(exceeds("threshold", "growth_mean", GROWTH))},
        ),
        Method(
            "m2po_paper",
            "drops the tokens of largest d^2 among those of the request with A d > 0 until the mean d^2 of the rest of "
            "these is at most the threshold",
            "M2PO, Algorithm 1, arXiv 2510.01161; ms-swift, Trinity-RFT",
            "total", ("token",), {"threshold": Threshold()},
            {("token", ""): Form(outward("threshold", "outward_log_ratio", SECOND_MOMENT))},
            asked=True,
        ),
        Method(
            "vaco", "drops tokens with A d > 0 of sequences whose mean abs(r - 1) exceeds the threshold",
            "VACO, arXiv 2603.01365; open-instruct (rho_mask_tv_divergence)",
            "total", ("token",), {"threshold": Threshold()},
            {("token", ""): Form(outward("threshold", "outward_distance"))},
            asked=True,
        ),
        Method(
            "cppo",
            "drops tokens with A d > 0 whose Z = w abs(p - q) exceeds min(delta, delta + b W - S): w falls from 1 at "
            "the first token of a sequence to `w_min` at its last, W and S are the sums of w and Z before the token, b "
            "is the 0.9 quantile of abs(p - q) of the sequence, clipped to `budget` .. `budget_max` (twice `budget`)",
            "CPPO, arXiv 2606.10968; verl, UniRL",
            "total", ("token",),
            {
                "delta": Threshold(),
                "budget": Threshold(DRIFT_BUDGET),
                "budget_max": _OPTIONAL,
                "w_min": Threshold(DRIFT_WEIGHT, SHARE),
            },
            {("token", ""): Form(outward("delta", "outward_drift", PLAIN, "budget", "budget_max", "w_min"))},
            check=checks.budget, asked=True,
        ),
        Method(
            "seq_mis",
            "drops a sequence whose geometric ratio leaves [lower, upper] and weighs the others with their product "
            "ratio",
            "prime-rl",
            "total", ("geometric",), {"lower": _OPTIONAL, "upper": _OPTIONAL},
            {("geometric", ""): Form(ratio_bounds("geometric"), sides=True, weight="log_product_ratio")},
            check=checks.bounds, asked=True,
        ),
    )
}  # fmt: skip


def kept_at(gap: str, sent: Collection[str], asked: Collection[str]) -> Mapping[str, frozenset[str]]:
    """What is kept of a gap where these were sent: for the methods that stand on it by default, for those whose own gap
    was not sent, and for those that rows put there."""
    default = {
        method.name for method in METHODS.values() if not method.asked and (method.gap == gap or method.gap not in sent)
    }
    return kept_scores(frozenset(default | set(asked)))


@cache
def kept_scores(methods: frozenset[str]) -> Mapping[str, frozenset[str]]:
    """What is kept of a gap for these methods: {score: measures, of tokens, sequences and mass}."""
    found: dict[str, frozenset[str]] = {}
    for method in METHODS.values():
        for form in method.forms.values():
            for curve in form.kept.values() if form.everywhere or method.name in methods else ():
                of_score = {"tokens", "mass"} if curve.whole else {"tokens", "mass", "sequences"}
                found[curve.score] = found.get(curve.score, frozenset()) | of_score
                if curve.whole:
                    found[curve.whole] = found.get(curve.whole, frozenset()) | {"sequences"}
    return found


#: Score -> measures, of all methods.
MEASURES: Final = kept_scores(frozenset(METHODS))
#: Score -> what it depends on where what-if keeps it: its parameters' defaults.
GIVEN: Final[Mapping[str, tuple[Any, ...]]] = {
    curve.score: tuple(getattr(method.parameters[name], "default", None) for name in curve.given)
    for method in METHODS.values()
    for form in method.forms.values()
    for curve in form.kept.values()
    if curve.given
}
