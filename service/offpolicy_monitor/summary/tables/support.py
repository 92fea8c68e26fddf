"""Support: the ratios of a truncated sampler on what it chose among, where the mass of that is sent.

An engine that samples from a nucleus (top-p, top-k, min-p) reports log-probs of what it kept; the trainer's are of all
tokens, so that a ratio has the kept mass as a factor, which is no change of the policy. With the log of the mass that
the trainer's policy gives to the same tokens, d = (log a - log mass of a) - (log b - log mass of b); log mu is of the
support as it is.
"""

from typing import Any, Final

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.figure import Figure, under
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, GAPS, SUPPORTS

NAME: Final = "support"
#: gap -> the masses that it needs: those of the trainer's policies that it is between.
MASSES: Final = {gap: tuple(SUPPORTS[name] for name in pair if name in SUPPORTS) for gap, pair in GAP_LOGPROBS.items()}
#: The gaps that begin at what was sampled: those of a run's page.
PLOTTED: Final = ("mismatch", "total")

TABLES: Final = tuple(
    schema.Table(
        f"{NAME}/{gap}",
        (
            schema.count("tokens", "tokens with all that is needed", at_most=f"gaps/{gap}/tokens"),
            schema.number("log_ratio", "d on the support", at_most="log_ratio_abs"),
            schema.magnitude("log_ratio_abs", "|d|"),
            schema.magnitude("log_ratio_square", "d^2", square_of=("tokens", "log_ratio_abs"), product=True),
            schema.magnitude("k3", "exp(d) - 1 - d"),
            schema.magnitude("ratio", "exp(d)"),
            schema.magnitude("mass", "the mass that the numerator's policy gives to the support"),
            schema.count("outside_tokens", "tokens more probable than their support", at_most="tokens"),
        ),
        "the gap on what the sampler chose among",
        needs=(gap, *MASSES[gap]),
        summed_from=MASSES[gap][0],
        since=7,
        filled=True,
    )
    for gap in GAPS
)


def support(arrays: Arrays) -> dict[str, Any]:
    """{gap: figures} of those with a token."""
    records = {gap: arrays.record(f"{NAME}/{gap}") for gap in GAPS}
    return {gap: _figures(sums) for gap, sums in records.items() if sums.get("tokens")}


def _figures(sums: Sums) -> dict[str, Any]:
    tokens = sums["tokens"]
    return {
        "tokens": int(tokens),
        "mass_mean": sums["mass"] / tokens,
        "ratio_mean": sums["ratio"] / tokens,
        "k1": -sums["log_ratio"] / tokens,
        "k3": sums["k3"] / tokens,
        "abs_log_ratio_mean": sums["log_ratio_abs"] / tokens,
        "outside_tokens": int(sums["outside_tokens"]),
    }


FIGURES: Final = under(
    "{gap}",
    (
        Figure("tokens", "tokens", "with the log-probs of the gap and the masses of their supports"),
        Figure(
            "mass_mean", "share", "mean mass that the numerator's policy gives to what the sampler chose among",
            headline=PLOTTED,
        ),
        Figure(
            "ratio_mean", "ratio", "mean of `exp(d)`, d on the support",
            source="DeepSeek-V3.2, arXiv 2512.02556", headline=PLOTTED,
        ),
        Figure("k1", "nats", "mean of `-d`"),
        Figure("k3", "nats", "mean of `exp(d) - 1 - d`", headline=PLOTTED),
        Figure("abs_log_ratio_mean", "nats", "mean of `abs d`"),
        Figure("outside_tokens", "tokens", "whose log-prob is above that of their support by more than rounding"),
    ),
)  # fmt: skip

KIND: Final = Kind(
    NAME,
    TABLES,
    support,
    FIGURES,
    "Only where the mass of the sampler's support was sent, by gap.",
    of_shards=True,
    measured="offpolicy_monitor.measure.support",
)
