"""MethodSummary: what one correction (a row of the catalogue) would have dropped or reweighted.

Counts and sums that merge across shards, and the fields of a method that they answer. The row that ran travels with the
sums, so that a figure is never shown with other thresholds than its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from offpolicy_monitor.summary.gap import ratio_mean, ratio_spread
from offpolicy_monitor.summary.rows import Table, count, magnitude, number
from offpolicy_monitor.summary.sums import Sums, fraction

if TYPE_CHECKING:
    from offpolicy_monitor.summary.arrays import Arrays


#: Over valid tokens and non-empty sequences; w is the weight of a truncation, d the log-ratio of the method's gap.
METHOD: Final = Table(
    "methods/{row}",
    (
        count("tokens", "valid tokens of the method's gap"),
        count("sequences", "sequences with one"),
        count("masked_tokens", "dropped tokens", at_most="tokens"),
        count("masked_sequences", "sequences of which nothing is kept", at_most="touched_sequences"),
        count("touched_sequences", "sequences of which something is dropped", at_most="sequences"),
        magnitude("k3_kept", "k3 of kept tokens"),
        magnitude("k3_masked", "k3 of dropped tokens"),
        magnitude("log_ratio_square_kept", "d^2 of kept tokens"),
        magnitude("log_ratio_square_masked", "d^2 of dropped tokens"),
    ),
    "what a method row would drop",
)
SIDES: Final = Table(
    METHOD.path,
    (
        count("masked_low_tokens", "tokens dropped below a lower bound"),
        count("masked_high_tokens", "tokens dropped above an upper bound"),
    ),
    "the same by side",
    part="sides",
    needs="a rule with two bounds",
)
MASS: Final = Table(
    METHOD.path,
    (
        magnitude("advantage_mass", "|A|"),
        magnitude("masked_advantage_mass", "|A| of dropped tokens", at_most="advantage_mass"),
    ),
    "the same in |A|",
    part="mass",
    needs="advantages",
)
WEIGHTS: Final = Table(
    METHOD.path,
    (
        magnitude("weight", "w"),
        magnitude("weight_square", "w^2"),
        number("weight_excess", "w - 1"),
        magnitude("weight_excess_square", "(w - 1)^2"),
        magnitude("weight_max", "the largest w", merge="max"),
        count("truncated_tokens", "tokens whose weight is cut"),
    ),
    "the weights of a truncation",
    part="weights",
    needs="a rule that reweights",
)
TABLES: Final = (METHOD, SIDES, MASS, WEIGHTS)

#: Method, gap, level and thresholds of a row, as JSON.
Spec = Mapping[str, Any]


def path_of(name: str) -> str:
    """The path of the record of a row: names may hold what divides paths."""
    return f"methods/{quote(name, safe='')}"


def method_keys(name: str) -> Iterator[str]:
    """The keys of the tables of a row."""
    return (table.at(path_of(name)).key for table in TABLES)


DROP_COUNTS: Final = (
    "masked_tokens",
    "masked_low_tokens",
    "masked_high_tokens",
    "masked_sequences",
    "touched_sequences",
)


@dataclass(frozen=True)
class MethodSummary:
    """A view of one row of the catalogue: `spec` (method, gap, level and thresholds as JSON) and its sums by name.

    Without a token the sums are its counts of drops alone, which are 0; without a spec there are none.
    """

    spec: Spec | None
    sums: Sums

    @classmethod
    def of(cls, arrays: "Arrays", name: str, spec: Spec | None) -> "MethodSummary":
        """The row of this name."""
        sums = arrays.record(path_of(name))
        return cls(spec, sums if sums.get("tokens") else {key: sums[key] for key in DROP_COUNTS if key in sums})

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
