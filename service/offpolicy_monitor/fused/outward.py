"""What-if cells of scores of tokens that move outward: kept only where a row asks, and made from another look at them.

Shapes: T tokens of S sequences of a part; cells by sign of A, whose tokens may differ within a sequence.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from offpolicy_monitor.fused.ahead import OUTWARD, fill
from offpolicy_monitor.fused.arrays import LENGTHS, Tokens
from offpolicy_monitor.fused.bands import given_numbers
from offpolicy_monitor.fused.counts import length_group, sign_of
from offpolicy_monitor.fused.parts import Part
from offpolicy_monitor.fused.sequences import rank
from offpolicy_monitor.fused.token import PASS, bin_key, f
from offpolicy_monitor.fused.totals import rounded
from offpolicy_monitor.methods.catalogue import GIVEN
from offpolicy_monitor.methods.curve import OUTWARD_SCORES
from offpolicy_monitor.summary import cells
from offpolicy_monitor.vocabulary import GAPS, MIXED, SIGNS

_FOLDS: Final = cells.folded(cells.TOKEN_BINS)
_MAGNITUDES: Final = np.ascontiguousarray(cells.SEQUENCE_BINS.magnitudes)


def tables_of(part: Part, tokens: Tokens) -> Iterator[tuple[str, Mapping[str, NDArray[Any]]]]:
    """The what-if tables of a part's outward scores."""
    for gap, score in part.outward:
        path, fine = f"whatif/{gap}/{score}", cells.TOKEN_BINS.number
        counts, masses = np.zeros((len(SIGNS), fine), np.int64), np.zeros((len(SIGNS), fine))
        lengths = np.zeros((len(SIGNS), LENGTHS, cells.LENGTH_BINS.number), np.int64)
        sequences = np.zeros((len(SIGNS), cells.SEQUENCE_BINS.number), np.int64)
        given = np.array(given_numbers(GIVEN.get(score, ())))
        count(
            tokens, part.plan, GAPS.index(gap), OUTWARD + OUTWARD_SCORES.index(score), given, _FOLDS, _MAGNITUDES,
            counts, masses, lengths, sequences,
        )  # fmt: skip
        yield f"{path}/tokens", {"": counts}
        yield f"{path}/mass", {"": masses}
        yield f"{path}/lengths", {"": lengths}
        yield f"{path}_min/sequences", {"": sequences}


@njit(**PASS)
def count(
    tokens: Any, plan: Any, gap: Any, score: Any, given: Any, folds: Any, magnitudes: Any, counts: Any, masses: Any,
    lengths: Any, sequences: Any,
) -> None:  # fmt: skip
    """Count tokens and |A| by sign and bin, and by length; sequences by the sign of all their tokens and the bin of
    the least of their scores."""
    offsets, scores = tokens.offsets, np.empty(tokens.offsets[-1])
    fill(tokens, plan.per_token, gap, score, given, scores)
    for s in range(len(offsets) - 1):
        n = offsets[s + 1] - offsets[s]
        if n == 0:
            continue
        group, least, common = length_group(n), np.inf, -1
        for t in range(offsets[s], offsets[s + 1]):
            A = tokens.advantages[t if plan.per_token else s]
            sign, single = sign_of(A), f(scores[t])
            key = bin_key(single)
            index = plan.token_bins[2 * key + (1 if single > plan.splits[key] else 0)]
            counts[sign, index] += 1
            masses[sign, index] += abs(np.float64(A))
            lengths[sign, group, folds[index]] += 1
            least = min(least, scores[t])
            common = sign if common in (-1, sign) else MIXED
        sequences[common, rank(least, magnitudes)] += 1
    rounded(masses.reshape(-1))
