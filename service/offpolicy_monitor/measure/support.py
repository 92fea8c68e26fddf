"""Support: the gaps on what the sampler chose among, of tokens whose log-probs and masses are all finite.

log p(token | support) = log p(token) - log p(support), nats; mu's log-probs are on the support as they are. Tables:
`support/<gap>`. Source: sampling distribution replay, DeepSeek-V3.2, https://arxiv.org/abs/2512.02556
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.batch import Array
from offpolicy_monitor.measure.differences import Asked, Difference, Found
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.support import MASSES, NAME
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, SUPPORTS

#: A log-prob above that of its support by no more, in nats, is rounding: bfloat16 has two to three digits.
ROUNDING: Final = 0.01


def asked(sent: Collection[str]) -> Asked:
    """Of the gaps whose masses were sent: sums of d and of exp(d), the mass, and tokens outside of the support."""
    gaps = _gaps(sent)
    d, mass = tuple(map(_difference, gaps)), tuple(map(_mass, gaps))
    return Asked(sums=d, exponentials=(*d, *mass), above=tuple((_numerator(gap), ROUNDING) for gap in gaps))


def _gaps(sent: Collection[str]) -> Sequence[str]:
    return [gap for gap, masses in MASSES.items() if set(sent) >= {*GAP_LOGPROBS[gap], *masses}]


def _difference(gap: str) -> Difference:
    above, below = GAP_LOGPROBS[gap]
    mass, *other = (SUPPORTS[name] for name in (above, below) if name in SUPPORTS)
    return Difference((above, *other), (mass, below))


def _needed(gap: str) -> tuple[str, ...]:
    return (*GAP_LOGPROBS[gap], *MASSES[gap])


def _mass(gap: str) -> Difference:
    """The log of the mass of the numerator's policy."""
    return Difference(MASSES[gap][:1], beside=_needed(gap))


def _numerator(gap: str) -> Difference:
    """Its log-prob on the support, which above 0 no token's is."""
    return Difference(GAP_LOGPROBS[gap][:1], MASSES[gap][:1], _needed(gap))


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of gaps with a token."""
    found = Found(view.differences, arrays)
    for gap in _gaps(view.block.batch.source.columns):
        own = _difference(gap)
        if tokens := found.tokens(own):
            sums = found.sums(own)
            del sums["changed_tokens"]
            ratio, mass = found.exponential(own), found.exponential(_mass(gap))
            outside = found.above(_numerator(gap), ROUNDING)
            yield f"{NAME}/{gap}", {**sums, "tokens": tokens, "ratio": ratio, "mass": mass, "outside_tokens": outside}
