"""Figures that are read off a step's tables: routing, breakdowns, versions, outliers, and the mismatch's signature."""

from typing import Final

from offpolicy_monitor.figures.figure import Figure, gauge, under

_ROUTING: Final = "`summary/tables/routing.py`"
_BREAKDOWN: Final = "`summary/tables/breakdown.py`"
_VERSIONS: Final = "`summary/tables/versions.py`"
_OUTLIERS: Final = "`summary/tables/outliers.py`"
_SIGNATURE: Final = "`summary/tables/signature.py`"

_PART: Final = (
    Figure("tokens", "tokens", "of the part", _ROUTING),
    Figure("k3", "nats", "mean k3 of the gap over them", _ROUTING),
    Figure("second_moment", "nats^2", "mean d^2 over them", _ROUTING),
    Figure("share_of_tokens", "share", "that they are", _ROUTING),
    Figure("share_of_k3", "share", "of the gap's k3 that they hold", _ROUTING),
    Figure("share_of_second_moment", "share", "of the gap's second moment that they hold", _ROUTING),
)

ROUTING: Final = under(
    "routing.{gap}",
    (
        Figure("tokens", "tokens", "with the experts of both policies", _ROUTING),
        Figure(
            "agreement", "share of experts", "mean of |E_a and E_b| / k over tokens and layers", _ROUTING,
            "R3, arXiv 2510.11370", True, gauge("routing_agreement_ratio"),
        ),
        Figure("changed_tokens_fraction", "share of tokens", "with a layer whose sets differ", _ROUTING),
        Figure("changed_layers_mean", "layers", "whose sets differ, per token", _ROUTING),
        Figure("by_layer.{index}", "share of experts", "agreement of one layer", _ROUTING),
        *under("agreeing", _PART),
        *under("changed", _PART),
        Figure("trend.intercept", "nats^2", "d^2 where all layers agree, by the line of d^2 on such layers", _ROUTING),
        Figure("trend.slope", "nats^2 per layer", "of that line", _ROUTING),
        Figure("trend.share", "share", "of the second moment that grows with such layers", _ROUTING),
        Figure("trend.z", "", "of the slope of sqrt(|d|)", _ROUTING),
    ),
)  # fmt: skip

BREAKDOWNS: Final = under(
    "breakdowns.{dimension}.{bucket}",
    (
        *under(
            "gaps.{gap}",
            (
                Figure("tokens", "tokens", "valid tokens of the bucket", _BREAKDOWN),
                Figure("log_ratio_mean", "nats", "mean of d over them", _BREAKDOWN),
                Figure("abs_log_ratio_mean", "nats", "mean of |d|", _BREAKDOWN),
                Figure("k1", "nats", "mean of -d", _BREAKDOWN),
                Figure("k2", "nats^2", "mean of d^2 / 2", _BREAKDOWN),
                Figure("k3", "nats", "mean of k3", _BREAKDOWN),
            ),
        ),
        Figure("attribution.mismatch", "share of E[total^2]", "`E[m^2]` over it, in the bucket", _BREAKDOWN),
        Figure("attribution.staleness", "share of E[total^2]", "`E[s^2]` over it, in the bucket", _BREAKDOWN),
        Figure("attribution.interaction", "share of E[total^2]", "`2 E[m s]` over it, in the bucket", _BREAKDOWN),
    ),
)

VERSIONS: Final = under(
    "versions",
    (
        Figure("spans", "spans", "runs of tokens of one known policy version", _VERSIONS),
        Figure("spans_per_sequence_mean", "spans", "over sequences with one", _VERSIONS),
        Figure("sequence_lag.mean", "versions", "mean over sequences of their mean lag", _VERSIONS),
        Figure("sequence_lag.floor_max", "versions", "largest whole lag of a sequence", _VERSIONS),
        Figure("sequence_lag.counts.{lag}", "sequences", "of that whole lag", _VERSIONS),
        *under(
            "staleness_curve.{gap}",
            (
                Figure("lag.{index}", "versions", "whole lag of a point", _VERSIONS),
                Figure("k3.{index}", "nats", "mean k3 at that point", _VERSIONS),
                Figure("tokens.{index}", "tokens", "at that point", _VERSIONS),
                Figure("intercept", "nats", "of the line through the points: what is left at lag 0", _VERSIONS),
                Figure("slope", "nats per version", "of that line", _VERSIONS),
            ),
        ),
    ),
)

OUTLIERS: Final = (
    Figure(
        "outliers.{gap}.ratio", "ratio", "largest k3 of a shard or place over the median of the others", _OUTLIERS,
        headline=("mismatch",),
    ),
    Figure("outliers.{gap}.k3", "nats", "that largest k3", _OUTLIERS),
)  # fmt: skip

_HELD: Final = (
    Figure("token_share", "share of tokens", "that they are", _SIGNATURE),
    Figure("second_moment_share", "share of sum d^2", "that they hold", _SIGNATURE),
    Figure("k3_share", "share of sum k3", "that they hold", _SIGNATURE),
    Figure("direction", "", "their mean d over their mean |d|", _SIGNATURE),
    Figure("z", "", "of their mean d, by flipping signs", _SIGNATURE),
    Figure("tokens", "tokens", "how many they are", _SIGNATURE),
)

SIGNATURE: Final = under(
    "signature",
    (
        Figure("regression.slope", "", "of log pi_old on log mu, where 0.01 < mu < 0.9", _SIGNATURE),
        Figure("regression.z", "", "of slope - 1", _SIGNATURE),
        Figure("regression.share", "share of sum d^2", "there that the line explains", _SIGNATURE),
        Figure("neighbours.next", "", "correlation of log pi_old with log mu of the next token", _SIGNATURE),
        Figure("neighbours.previous", "", "the same with the previous token", _SIGNATURE),
        Figure("neighbours.asymmetry", "", "how far the two differ", _SIGNATURE),
        Figure("neighbours.z", "", "of the asymmetry", _SIGNATURE),
        Figure("grid.share", "share of tokens", "that are rounded, in the column where most are", _SIGNATURE),
        Figure("grid.step", "nats", "that they are multiples of", _SIGNATURE),
        Figure("grid.tokens", "tokens", "looked at", _SIGNATURE),
        Figure("uncertain.exact_fraction", "share of tokens", "equal to the bit, of 0.01 < mu < 0.9", _SIGNATURE),
        Figure("uncertain.tokens", "tokens", "with 0.01 < mu < 0.9", _SIGNATURE),
        *under("first_token", _HELD),
        *under("low_probability", _HELD),
        Figure("lag.share", "share of sum d^2", "that grows with version lag", _SIGNATURE),
        Figure("lag.z", "", "of the slope of |d| on lag", _SIGNATURE),
        Figure("replica.share", "share of sum d^2", "of the shard or label that stands out most surely", _SIGNATURE),
        Figure("replica.z", "", "of its mean |d| over the usual", _SIGNATURE),
        Figure("replica.ratio", "ratio", "of its mean d^2 to the usual", _SIGNATURE),
    ),
)
