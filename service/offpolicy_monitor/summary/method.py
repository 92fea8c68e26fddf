"""MethodSummary: what one correction (a row of the catalogue) would have dropped or reweighted.

Counts and sums that merge across shards, and the fields of a method that they answer. The row that ran travels with the
sums, so that a figure is never shown with other thresholds than its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.gap import Spreads, ratio_spreads, ratio_std
from offpolicy_monitor.summary.records import ALL, Figures, Floats, Formulas, Records, Wanted
from offpolicy_monitor.summary.rows import OF_GAP, Table, count, magnitude, number
from offpolicy_monitor.summary.scheme import REMEMBERED
from offpolicy_monitor.summary.sums import Sums

#: Over valid tokens and non-empty sequences; w is the weight of a truncation, d the log-ratio of the method's gap.
METHOD: Final = Table(
    "methods/{row}",
    (
        count("tokens", "valid tokens of the method's gap"),
        count("sequences", "sequences with one"),
        count("masked_tokens", "dropped tokens", at_most="tokens"),
        count("masked_sequences", "sequences of which nothing is kept", at_most="touched_sequences"),
        count("touched_sequences", "sequences of which something is dropped", at_most=("sequences", "masked_tokens")),
        magnitude("k3_kept", "k3 of kept tokens"),
        magnitude("k3_masked", "k3 of dropped tokens"),
        magnitude("log_ratio_square_kept", "d^2 of kept tokens", product=True),
        magnitude("log_ratio_square_masked", "d^2 of dropped tokens", product=True),
    ),
    "what a method row would drop",
    needs=(OF_GAP,),
)
SIDES: Final = Table(
    METHOD.path,
    (
        count("masked_low_tokens", "tokens dropped below a lower bound", at_most="masked_tokens"),
        count("masked_high_tokens", "tokens dropped above an upper bound", at_most="masked_tokens"),
    ),
    "the same by side",
    part="sides",
    needs=(OF_GAP,),
    when="a rule with two bounds",
)
MASS: Final = Table(
    METHOD.path,
    (
        magnitude("advantage_mass", "|A|"),
        magnitude("masked_advantage_mass", "|A| of dropped tokens", at_most="advantage_mass"),
    ),
    "the same in |A|",
    part="mass",
    needs=(OF_GAP, "advantages"),
    summed_from="advantages",
)
WEIGHTS: Final = Table(
    METHOD.path,
    (
        magnitude("weight", "w"),
        magnitude("weight_square", "w^2", square_of=("tokens", "weight"), product=True),
        number("weight_excess", "w - 1"),
        magnitude("weight_excess_square", "(w - 1)^2", square_of=("tokens", "weight_excess"), product=True),
        magnitude("weight_max", "the largest w", merge="max", extreme_of=("tokens", "weight")),
        count("truncated_tokens", "tokens whose weight is cut", at_most="tokens"),
    ),
    "the weights of a truncation",
    part="weights",
    needs=(OF_GAP,),
    when="a rule that reweights",
)
TABLES: Final = (METHOD, SIDES, MASS, WEIGHTS)

#: Method, gap, level and thresholds of a row, as JSON.
Spec = Mapping[str, Any]


def path_of(name: str) -> str:
    """The path of the record of a row: names may hold what divides paths."""
    return f"methods/{quote(name, safe='')}"


@lru_cache(REMEMBERED)
def paths_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of several: a run has the same rows with every shard."""
    return tuple(map(path_of, names))


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
    def of(cls, arrays: Arrays, name: str, spec: Spec | None) -> "MethodSummary":
        """The row of this name."""
        sums = arrays.record(path_of(name))
        return cls(spec, sums if sums.get("tokens") else {key: sums[key] for key in DROP_COUNTS if key in sums})


#: The names of all sums of a row.
SUMS: Final = tuple(row.name for table in TABLES for row in table.rows)
COUNTS: Final = ("tokens", "sequences", *DROP_COUNTS)


def shapes(
    specs: Sequence[Spec], figures: Sequence[Mapping[str, Any]], tokens: Sequence[float]
) -> list[dict[str, Any]]:
    """Rows with their figures; of one without a token, its spec and counts of drops."""
    nothing = {"tokens": 0, "sequences": 0}
    return [
        {**spec, **(row if number > 0 else nothing | {name: row[name] for name in DROP_COUNTS if name in row})}
        for spec, row, number in zip(specs, figures, tokens, strict=True)
    ]


def method_figures(specs: Sequence[Spec], sums: Records, wanted: Wanted = ALL) -> Figures:
    """The fields of methods as protocol.md names them, by formulas over all of them: counts first."""
    counts = {name: sums[name] for name in COUNTS if name == "tokens" or name in wanted}
    return {**counts, **_OF_ROWS.of(sums, wanted), **_kl_terms(sums, specs, wanted)}


def method_needs(specs: Sequence[Spec], sums: Records) -> Figures:
    """What each needs; NaN for a row that lacks it."""
    return {**_OF_ROWS.needed(sums), **dict.fromkeys(_KL_TERMS, _taus(specs))}


def _kept(sums: Records) -> Floats:
    return sums["tokens"] - sums["masked_tokens"]


def _weights(sums: Records) -> Spreads:
    return ratio_spreads(sums, ("weight",), sums["tokens"])


_OF_WEIGHTS: Final = ("weight_mean", "weight_std", "weight_max", "weight_ess", "truncated_token_fraction")
_OF_ROWS: Final = Formulas(
    {
        "masked_token_fraction": ("masked_tokens", "tokens"),
        "masked_sequence_fraction": ("masked_sequences", "sequences"),
        "masked_advantage_mass": ("masked_advantage_mass", "advantage_mass"),
        "k3_masked": ("k3_masked", "masked_tokens"),
        "truncated_token_fraction": ("truncated_tokens", "tokens"),
    },
    {
        "k3_kept": lambda sums: sums["k3_kept"] / _kept(sums),
        "k2_kept": lambda sums: sums["log_ratio_square_kept"] / (2 * _kept(sums)),
        "weight_mean": lambda sums: sums.once(_weights).mean[0],
        "weight_std": lambda sums: ratio_std(sums, "weight", sums["tokens"]),
        "weight_max": lambda sums: sums["weight_max"],
        "weight_ess": lambda sums: sums.once(_weights).ess[0],
    },
    {
        **{name: name for name in DROP_COUNTS},
        "masked_advantage_mass": "advantage_mass",
        **dict.fromkeys(_OF_WEIGHTS, "weight"),
    },
)
_KL_TERMS: Final = ("kl_term_kept", "kl_term_all")


def _kl_terms(sums: Records, specs: Sequence[Spec], wanted: Wanted) -> Figures:
    if not any(name in wanted for name in _KL_TERMS):
        return {}
    tau, kept, masked = _taus(specs), sums["log_ratio_square_kept"], sums["log_ratio_square_masked"]
    return {"kl_term_kept": tau * kept / _kept(sums), "kl_term_all": tau * (kept + masked) / sums["tokens"]}


def _taus(specs: Sequence[Spec]) -> Floats:
    return np.array([spec.get("kl_tau", np.nan) for spec in specs], np.float64)
