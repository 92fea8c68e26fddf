"""Figures that weigh tokens by their advantage, and sequences by how far their drift cancels, read off tables.

A is a token's advantage, r its importance ratio, D the sum of its log-ratios over a sequence. The gradient of a token
weighs |A r|.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.faults import need
from offpolicy_monitor.summary.kind import Kind, Looked
from offpolicy_monitor.summary.records import Figures, Floats, Formulas, Wanted
from offpolicy_monitor.summary.scheme import Scheme

if TYPE_CHECKING:
    from offpolicy_monitor.summary.checks.facts import Facts
    from offpolicy_monitor.summary.checks.glance import Glance

#: The keys of |A r|: 2**MANTISSA_BITS equal parts of each power of two between these exponents, from 1 on.
SMALLEST_EXPONENT: Final = -24
LARGEST_EXPONENT: Final = 24
MANTISSA_BITS: Final = 4
TOP: Final = 0.01  # of the tokens

#: Bins of |A r|: the keys, with one for what lies below them and one for what lies above.
GRADIENT_BINS: Final = 2 + ((LARGEST_EXPONENT - SMALLEST_EXPONENT) << MANTISSA_BITS)
#: Of a gap of which that is not known.
_NO_MASS: Final = np.zeros(GRADIENT_BINS, np.int64)

TABLES: Final = (
    schema.Table(
        "sequence/{gap}",
        (
            schema.count("sequences", "sequences with a valid token"),
            schema.count("moving", "sequences with sum |d| > 0", at_most="sequences"),
            schema.magnitude("cancelled", "1 - |D| / sum |d| of those", at_most="moving"),
            schema.count("vanishing", "sequences with exp(D) < 0.1", at_most="sequences"),
            schema.count("extreme", "sequences with a token of |p - q| > 0.5", at_most="sequences"),
        ),
        "how the drift of sequences cancels",
        needs=(schema.OF_GAP,),
        required=True,
    ),
    schema.Table(
        "advantage/{gap}",
        (
            schema.number("advantage_excess", "A (r - 1)"),
            schema.magnitude("advantage_abs", "|A|"),
            schema.magnitude("mass_square", "A^2 r^2", product=True),
            schema.magnitude("advantage_square", "A^2", square_of=("gaps/{gap}/tokens", "advantage_abs"), product=True),
        ),
        "sums weighed by advantages",
        needs=(schema.OF_GAP, "advantages"),
        summed_from="advantages",
    ),
    schema.Table(
        "advantage/{gap}",
        (
            schema.count("tokens", "valid tokens"),
            schema.count("bad", "tokens with A < 0 and q - p > 0.5", at_most="tokens"),
            schema.count("outward", "tokens with A d > 0", at_most="tokens"),
            schema.magnitude("outward_square", "d^2 of those", product=True),
        ),
        "updates at risk, of the total gap",
        part="updates",
        needs=("total", "advantages"),
        summed_from="advantages",
    ),
    schema.Table(
        "gradient/{gap}",
        (schema.count("", "tokens by |A r|", GRADIENT_BINS, total="gaps/{gap}/tokens"),),
        "the mass of the gradient",
        needs=(schema.OF_GAP, "advantages"),
        summed_from="advantages",
    ),
)

#: Tables that come together.
_TOGETHER: Final = ("advantage", "gradient")
#: Tables that count as many of a unit as their gap has.
_AS_MANY: Final[Mapping[str, str]] = {"sequence": "sequences", "advantage": "tokens"}

TOP_SHARE: Final = "gradient_mass_top1"

#: Fields of gaps by tables `advantage/{gap}`: `advantage_weighted_excess` = E[A (r - 1)] / E|A|;
#: `advantage_second_moment` = E[A^2 r^2] / E[A^2]; `bad_update_fraction` = share of valid tokens with A < 0 and
#: q - p > 0.5, the updates that DPPO found to drive collapses; `outward_second_moment` = mean d^2 over tokens with
#: A d > 0, those whose gradient pushes them further out and that M2PO's trust region holds, 0 where there are none.
WEIGHED: Final = Formulas(
    {
        "advantage_weighted_excess": ("advantage_excess", "advantage_abs"),
        "advantage_second_moment": ("mass_square", "advantage_square"),
        "bad_update_fraction": ("bad", "tokens"),
    },
    {"outward_second_moment": lambda sums: sums["outward_square"] / np.maximum(sums["outward"], 1)},
    {
        **dict.fromkeys(("advantage_weighted_excess", "advantage_second_moment", TOP_SHARE), "advantage_abs"),
        **dict.fromkeys(("bad_update_fraction", "outward_second_moment"), "bad"),
    },
)
#: Fields of the sequences of gaps by tables `sequence/{gap}`: `cancellation`, the mean of 1 - |sum d| / sum |d| over
#: sequences with sum |d| > 0; and the shares of non-empty sequences whose product ratio is below 0.1, and that have a
#: token with |p - q| > 0.5.
DRIFT: Final = Formulas(
    {
        "cancellation": ("cancelled", "moving"),
        "vanishing_fraction": ("vanishing", "sequences"),
        "extreme_fraction": ("extreme", "sequences"),
    },
    {},
    {"cancellation": "moving", "vanishing_fraction": "moving", "extreme_fraction": "extreme"},
)


def gradient_mass(arrays: Arrays, gaps: Sequence[str], wanted: Wanted) -> Figures:
    """`gradient_mass_top1` = share of the sum of |A r| that the top 1 % of valid tokens hold."""
    if TOP_SHARE not in wanted:
        return {}
    found = (arrays.get(f"gradient/{gap}") for gap in gaps)
    return {TOP_SHARE: top_share(np.stack([_NO_MASS if counts is None else counts for counts in found]))}


def top_share(gradient: Array) -> Floats:
    """Share of the sum of |A r| that the top 1 % of the tokens hold, from counts by key [R, GRADIENT_BINS]: [R].

    NaN where all are 0. A token counts with the middle of its key's range, which is off by at most 1 part in 33; so
    the share is off by at most 1 part in 16.
    """
    keys = np.flatnonzero(gradient.any(0))
    if not len(keys):
        return np.full(len(gradient), np.nan)
    counts, size = gradient[:, keys].astype(np.float64), middles()[keys]
    above = counts[:, ::-1].cumsum(1)[:, ::-1]
    taken = np.minimum(np.maximum(TOP * above[:, :1] - (above - counts), 0.0), counts)
    # Added one after the other, from the largest key on and from the smallest on.
    held, whole = (taken * size)[:, ::-1].cumsum(1)[:, -1], (counts * size).cumsum(1)[:, -1]
    share: Floats = held / whole
    return share


@cache
def middles() -> Floats:
    """The middle of each key's magnitudes."""
    return np.array([middle(key) for key in range(GRADIENT_BINS)])


def middle(key: int) -> float:
    """The middle of the magnitudes of a key; 0 for key 0."""
    if key == 0:
        return 0.0
    power, part = divmod(key - 1, 1 << MANTISSA_BITS)
    return math.ldexp(1 + (part + 0.5) / (1 << MANTISSA_BITS), power + SMALLEST_EXPONENT)


def _check(facts: "Facts", parts: Sequence[str], path: str) -> None:
    name, gap = parts
    if unit := _AS_MANY.get(name):
        whole = facts.count(gap, unit)
        need(facts.arrays.record(path).get(unit, whole) == whole, f"{path}/{unit}", "are not those of the gap")
    if name in _TOGETHER:
        one, other = (f"{table}/{gap}" for table in _TOGETHER)
        need(one in facts.arrays and other in facts.arrays, one, f"needs {other}, and the other way round")


def _see(scheme: Scheme, glance: "Glance[Looked]", looked: Looked) -> bool:
    _, (name, gap) = looked
    if name in _TOGETHER and not all(f"{table}/{gap}" in scheme.paths for table in _TOGETHER):
        return False
    if unit := _AS_MANY.get(name):
        part, whole = (scheme.spans.get(f"{table}/{gap}/{unit}") for table in (name, "gaps"))
        if part is None or whole is None:
            return False
        glance.sum_of(looked, part, whole, equal=True)
    return True


KIND: Final = Kind(
    "advantages",
    TABLES,
    of_gaps={"advantage": WEIGHED},
    of_sequences={"sequence": DRIFT},
    made_of_gaps=gradient_mass,
    measured="offpolicy_monitor.measure.advantages",
    check=_check,
    see=_see,
)
