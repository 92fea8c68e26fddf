"""Figures of a method row: what it would have dropped or reweighted. Its thresholds are those of the catalogue.

The same figures of the row that the trainer says it really uses stand at `correction`, whatever its name, for rules.
"""

from dataclasses import replace
from typing import Final

from offpolicy_monitor.methods import METHODS
from offpolicy_monitor.methods.model import Threshold
from offpolicy_monitor.summary.figure import Figure, gauge, under

_KEPT: Final = "over kept tokens, of the row's gap"

_THRESHOLDS: Final = tuple(
    dict.fromkeys(
        name
        for method in METHODS.values()
        for name, parameter in method.parameters.items()
        if isinstance(parameter, Threshold)
    )
)

_FIGURES: Final = (
    Figure("tokens", "tokens", "valid tokens of the row's gap"),
    Figure("sequences", "sequences", "with a valid token"),
    Figure("masked_tokens", "tokens", "dropped; those of dropped sequences too"),
    Figure("masked_low_tokens", "tokens", "dropped below the lower bound, or by the rule for A < 0"),
    Figure("masked_high_tokens", "tokens", "dropped above the upper bound, or by the rule for A > 0"),
    Figure(
        "masked_token_fraction", "share of tokens", "dropped",
        headline=True, gauge=gauge("masked_ratio", unit="token"),
    ),
    Figure("masked_sequences", "sequences", "had a valid token and keep none"),
    Figure(
        "masked_sequence_fraction", "share of sequences", "of those with a valid token, keep none",
        gauge=gauge("masked_ratio", unit="sequence"),
    ),
    Figure("touched_sequences", "sequences", "lost at least one token"),
    Figure(
        "masked_advantage_mass", "share of sum abs A", "that the dropped tokens hold",
        gauge=gauge("masked_advantage_ratio"),
    ),
    Figure("weight_mean", "ratio", "mean of the weights that the row multiplies with"),
    Figure("weight_std", "ratio", "standard deviation of the weights, of the population"),
    Figure("weight_max", "ratio", "the largest weight"),
    Figure(
        "weight_ess", "share of tokens", "effective sample size of the weights, `mean(w)^2 / mean(w^2)`",
        gauge=gauge("method_effective_sample_size_ratio"),
    ),
    Figure("truncated_token_fraction", "share of tokens", "whose weight is not their ratio"),
    Figure("k3_kept", "nats", f"mean k3 {_KEPT}"),
    Figure("k3_masked", "nats", "mean k3 over dropped tokens"),
    Figure("k2_kept", "nats^2", f"mean k2 {_KEPT}"),
    Figure("kl_term_kept", "nats^2", f"kl_tau times the mean of d^2 {_KEPT}"),
    Figure("kl_term_all", "nats^2", "kl_tau times the mean of d^2 over all valid tokens"),
    Figure(
        "anchor_disagreement", "share of tokens",
        "valid for all log-probs that the rule would decide otherwise with its other anchor",
        "`summary/tables/anchors.py`",
    ),
    *under(
        "length_bias",
        (
            Figure("spearman", "", "rank correlation of dropped (0 or 1) with length", "`summary/tables/lengths.py`"),
            Figure("slope", "", "slope of dropped (0 or 1) on log2 length", "`summary/tables/lengths.py`"),
            Figure("shortest", "share", "dropped of the shortest quarter of sequences", "`summary/tables/lengths.py`"),
            Figure("longest", "share", "dropped of the longest quarter of sequences", "`summary/tables/lengths.py`"),
            Figure("ratio", "", "`longest` over `shortest`", "`summary/tables/lengths.py`"),
            Figure("difference", "", "`longest` less `shortest`", "`summary/tables/lengths.py`"),
        ),
    ),
    *(Figure(name, "", f"the `{name}` that the row ran with") for name in _THRESHOLDS),
)  # fmt: skip

_OF_CORRECTION: Final = (
    *("masked_token_fraction", "masked_sequence_fraction", "length_bias.longest", "length_bias.shortest"),
)

METHOD: Final = under("methods.{method}", _FIGURES)
CORRECTION: Final = under(
    "correction", (replace(figure, headline=figure.path in _OF_CORRECTION, gauge=None) for figure in _FIGURES)
)
