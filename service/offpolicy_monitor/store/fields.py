"""Names of figures as data: which are kept narrow for plots (HEADLINE), and which exist though a step may lack them.

A path names a figure in the nested figures of a step: `gaps.mismatch.k3`. In a pattern `*` stands for any one key.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.summary.gap import QUANTILES
from offpolicy_monitor.vocabulary import GAPS

#: Stored in `metrics` for each step that counts: what pages and dashboards plot and rules look at. Some 80 a step.
HEADLINE: Final = (
    "tokens",
    "sequences",
    "sequence_length_mean",
    "entropy_mean",
    "reward_mean",
    "policy_lag.mean",
    "policy_lag.max",
    "empty_sequences",
    "excluded_tokens.nonfinite",
    "suspect_tokens.positive",
    "zero_filled_tokens",
    "attribution.*",
    "outliers.mismatch.ratio",
    "routing.*.agreement",
    "gaps.*.tokens",
    "gaps.*.k1",
    "gaps.*.k3",
    "gaps.*.log_ratio_mean",
    "gaps.*.abs_log_ratio_mean",
    "gaps.*.abs_log_ratio_max",
    "gaps.*.ratio_mean",
    "gaps.*.ratio_max",
    "gaps.*.multiplicative_error",
    "gaps.*.tail_fraction",
    "gaps.*.chi2",
    "gaps.*.ess",
    "gaps.*.probability_diff_mean",
    "gaps.*.probability_correlation",
    "gaps.*.exact_fraction",
    "gaps.*.sequence.log_geometric_ratio_abs_mean",
    "gaps.*.sequence.geometric_ratio_mean",
    "gaps.*.sequence.ess",
    "gaps.*.sequence.extreme_fraction",
    "gaps.total.bad_update_fraction",
    "gaps.total.outward_second_moment",
    "methods.*.masked_token_fraction",
    "correction.masked_token_fraction",
    "correction.masked_sequence_fraction",
    "correction.length_bias.longest",
    "correction.length_bias.shortest",
)

BATCH_FIELDS: Final = (
    "tokens",
    "sequences",
    "empty_sequences",
    "excluded_tokens.nonfinite",
    "suspect_tokens.positive",
    "suspect_tokens.exact_zero",
    "zero_filled_tokens",
    "sequence_length_mean",
    "entropy_mean",
    "reward_mean",
    "policy_lag.mean",
    "policy_lag.max",
    *(f"attribution.{component}" for component in ("mismatch", "staleness", "interaction")),
)

TOKEN_FIELDS: Final = (
    *("tokens", "sequences", "k1", "k2", "k3", "k3_reverse", "js"),
    *("log_ratio_mean", "log_ratio_std", "log_ratio_min", "log_ratio_max"),
    *("abs_log_ratio_mean", "abs_log_ratio_max", "ratio_mean", "ratio_min", "ratio_max"),
    *("multiplicative_error", "tail_fraction", "chi2", "ess"),
    *("probability_diff_mean", "probability_diff_max", "probability_diff_std", "probability_correlation"),
    *("exact_fraction", "clamped_tokens"),
    *("length_budget", "advantage_weighted_excess", "advantage_second_moment", "gradient_mass_top1"),
    *("bad_update_fraction", "outward_second_moment"),
    *(f"quantiles.{q}" for q in QUANTILES),
)

SEQUENCE_FIELDS: Final = (
    *("k1", "k3", "abs_log_ratio_mean"),
    *("geometric_ratio_mean", "geometric_ratio_min", "geometric_ratio_max", "geometric_ratio_std"),
    *("log_geometric_ratio_mean", "log_geometric_ratio_abs_mean"),
    *("log_geometric_ratio_min", "log_geometric_ratio_max"),
    *("log_product_ratio_mean", "log_product_ratio_min", "log_product_ratio_max"),
    *("chi2", "ess", "perplexity_ratio", "cancellation", "vanishing_fraction", "extreme_fraction"),
    *("perplexity_numerator", "perplexity_denominator", "log_perplexity_numerator", "log_perplexity_denominator"),
    *(f"quantiles.{q}" for q in QUANTILES),
)

METHOD_FIELDS: Final = (
    *("tokens", "sequences", "masked_tokens", "masked_low_tokens", "masked_high_tokens", "masked_token_fraction"),
    *("masked_sequences", "masked_sequence_fraction", "touched_sequences", "masked_advantage_mass"),
    *("weight_mean", "weight_std", "weight_max", "weight_ess", "truncated_token_fraction"),
    *("k3_kept", "k3_masked", "k2_kept", "anchor_disagreement"),
)

ROUTING_FIELDS: Final = (
    *("tokens", "agreement", "changed_tokens_fraction", "changed_layers_mean"),
    *(
        f"{part}.{name}"
        for part in ("agreeing", "changed")
        for name in ("tokens", "k3", "second_moment", "share_of_tokens", "share_of_k3", "share_of_second_moment")
    ),
    *(f"trend.{name}" for name in ("intercept", "slope", "share", "z")),
)

#: Figures that a step may have. Names of methods are the catalogue's business, so any name stands here.
KNOWN: Final = frozenset(
    (
        *BATCH_FIELDS,
        *(f"gaps.{gap}.{name}" for gap in GAPS for name in TOKEN_FIELDS),
        *(f"gaps.{gap}.sequence.{name}" for gap in GAPS for name in SEQUENCE_FIELDS),
        *(f"methods.*.{name}" for name in METHOD_FIELDS),
        *(f"routing.{gap}.{name}" for gap in GAPS for name in ROUTING_FIELDS),
    )
)


#: Figures of buckets and curves, which a step may lack.
DETAILS: Final = (
    *(f"breakdowns.*.*.gaps.*.{name}" for name in ("tokens", "log_ratio_mean", "abs_log_ratio_mean", "k1", "k2", "k3")),
    "breakdowns.*.*.attribution.*",
    *(f"methods.*.length_bias.{n}" for n in ("spearman", "slope", "shortest", "longest", "ratio", "difference")),
    *("versions.spans", "versions.spans_per_sequence_mean", "versions.sequence_lag.*"),
    *(f"versions.staleness_curve.*.{name}" for name in ("intercept", "slope")),
    "routing.*.by_layer.*",
    *(f"outliers.*.{name}" for name in ("ratio", "k3")),
    *(f"correction.{name}" for name in ("masked_token_fraction", "masked_sequence_fraction")),
    *(f"correction.length_bias.{name}" for name in ("longest", "shortest")),
)


def headline(figures: Mapping[str, Any], correction: str | None = None) -> dict[str, float]:
    """The headline figures of a step that are present, by path.

    `correction` names the row that the trainer really uses: its figures stand at `correction.*` as well, so that rules
    find them whatever its name.
    """
    methods = figures.get("methods", {})
    known = {**figures, "correction": methods[correction]} if correction in methods else figures
    found: dict[str, float] = {}
    for pattern in HEADLINE:
        found.update(_matches(known, pattern.split("."), ""))
    return found


def is_headline(path: str) -> bool:
    """Whether a figure of this path would be in `metrics`."""
    parts = path.split(".")
    return any(_fits(pattern.split("."), parts) for pattern in HEADLINE)


def is_known(path: str) -> bool:
    """Whether a step may have a figure of this path, though none has it now."""
    parts = path.split(".")
    if parts[0] == "methods" and len(parts) == 3:
        parts[1] = "*"
    return ".".join(parts) in KNOWN or any(_fits(pattern.split("."), path.split(".")) for pattern in DETAILS)


def lookup(figures: Any, path: str) -> float | None:
    """The number at `path`, None where there is none. A key may hold dots itself: `quantiles.0.001`.

    An entry of a list goes by its place: `by_layer.0`.
    """
    if isinstance(figures, Sequence) and not isinstance(figures, str):
        figures = {str(place): item for place, item in enumerate(figures)}
    if not isinstance(figures, Mapping):
        return None
    if path in figures:
        return number(figures[path])
    first, _, rest = path.partition(".")
    return lookup(figures.get(first), rest) if rest else None


def number(value: Any) -> float | None:
    """The value if it is a number that can be plotted."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _matches(node: Any, parts: list[str], prefix: str) -> Iterator[tuple[str, float]]:
    if not parts:
        value = number(node)
        if value is not None:
            yield prefix[1:], value
    elif isinstance(node, Mapping):
        for key in node if parts[0] == "*" else parts[:1]:
            if key in node:
                yield from _matches(node[key], parts[1:], f"{prefix}.{key}")


def _fits(pattern: list[str], parts: list[str]) -> bool:
    return len(pattern) == len(parts) and all(a in ("*", b) for a, b in zip(pattern, parts, strict=True))
