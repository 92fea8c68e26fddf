"""MethodSummary: what one correction (a row of the catalogue) would have dropped or reweighted.

Counts and sums that merge across shards, and the fields of a method that they answer. The row that ran travels with the
sums, so that a figure is never shown with other thresholds than its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from offpolicy_monitor.summary.gap import ratio_mean, ratio_spread
from offpolicy_monitor.summary.sums import Reduction, Sums, fraction, merge_sums

#: Sums over valid tokens and non-empty sequences; w is the weight of a truncation, d the log-ratio of the method's gap.
METHOD_SUMS: Final[Mapping[str, Reduction]] = {
    "tokens": "sum",
    "sequences": "sum",
    "masked_tokens": "sum",
    "masked_low_tokens": "sum",
    "masked_high_tokens": "sum",
    "masked_sequences": "sum",
    "touched_sequences": "sum",
    "advantage_mass": "sum",  # |A|
    "masked_advantage_mass": "sum",
    "k3_kept": "sum",
    "k3_masked": "sum",
    "log_ratio_square_kept": "sum",  # d^2
    "log_ratio_square_masked": "sum",
    "weight": "sum",  # w
    "weight_square": "sum",
    "weight_excess": "sum",  # w - 1
    "weight_excess_square": "sum",
    "weight_max": "max",
    "truncated_tokens": "sum",
}


DROP_COUNTS: Final = (
    "masked_tokens",
    "masked_low_tokens",
    "masked_high_tokens",
    "masked_sequences",
    "touched_sequences",
)


@dataclass(frozen=True)
class MethodSummary:
    """One row of the catalogue (`spec`: method, gap, level and thresholds as JSON) and its sums (METHOD_SUMS).

    `spec` is None once rows of one name but different thresholds were merged: such figures would be of neither.
    """

    spec: Mapping[str, Any] | None
    sums: Sums = field(default_factory=dict)

    def merge(self, other: "MethodSummary") -> "MethodSummary":
        """The summary of both batches."""
        if self.spec is None or self.spec != other.spec:
            return MethodSummary(None)
        return MethodSummary(self.spec, merge_sums(METHOD_SUMS, self.sums, other.sums))

    def figures(self) -> dict[str, Any] | None:
        """The fields of a method as protocol.md names them; None where rows of different thresholds met."""
        if self.spec is None:
            return None
        counts = {name: int(self.sums.get(name, 0)) for name in ("tokens", "sequences")}
        counts |= {name: int(self.sums[name]) for name in DROP_COUNTS if name in self.sums}
        if not counts["tokens"]:
            return {**self.spec, **counts}
        return {**self.spec, **counts, **self._fractions(), **self._weights(), **self._divergences()}

    def _fractions(self) -> dict[str, Any]:
        sums = self.sums
        figures: dict[str, Any] = {
            "masked_token_fraction": sums["masked_tokens"] / sums["tokens"],
            "masked_sequence_fraction": sums["masked_sequences"] / sums["sequences"],
        }
        if "advantage_mass" in sums:
            figures["masked_advantage_mass"] = fraction(sums["masked_advantage_mass"], sums["advantage_mass"])
        return figures

    def _weights(self) -> dict[str, Any]:
        sums = self.sums
        if "weight" not in sums:
            return {}
        count = sums["tokens"]
        _, ess, std = ratio_spread(sums, "weight", count)
        return {
            "weight_mean": ratio_mean(sums, "weight", count),
            "weight_std": std,
            "weight_max": sums["weight_max"],
            "weight_ess": ess,
            "truncated_token_fraction": sums["truncated_tokens"] / count,
        }

    def _divergences(self) -> dict[str, Any]:
        sums = self.sums
        masked, kept = sums["masked_tokens"], sums["tokens"] - sums["masked_tokens"]
        square_kept, square_masked = sums["log_ratio_square_kept"], sums["log_ratio_square_masked"]
        figures = {
            "k3_kept": fraction(sums["k3_kept"], kept),
            "k3_masked": fraction(sums["k3_masked"], masked),
            "k2_kept": fraction(square_kept, 2 * kept),
        }
        tau = (self.spec or {}).get("kl_tau")
        if tau is not None:
            figures["kl_term_kept"] = fraction(tau * square_kept, kept)
            figures["kl_term_all"] = tau * (square_kept + square_masked) / sums["tokens"]
        return figures
