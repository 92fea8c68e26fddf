"""Support: the gaps on what the sampler chose among, of tokens whose log-probs and masses are all finite.

Measured beside the gaps, on the device of their batch, and only where masses were sent. Tables: `support/<gap>`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.support import SUPPORT_SUMS, on_support, support_sums
from offpolicy_monitor.measure.beside import Sent, both, sent_of
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.support import MASSES, NAME
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, SUPPORTS


def sums_of(view: BlockView) -> dict[str, Tensor]:
    """[1 + SUPPORT_SUMS, G] of the G gaps whose masses were sent: tokens, and the sums."""
    sent = sent_of(view.block)
    gaps = _gaps(sent)
    if not gaps:
        return {}
    policies = {name: _policy(sent, name) for gap in gaps for name in GAP_LOGPROBS[gap]}
    above, below = (torch.stack([policies[GAP_LOGPROBS[gap][side]] for gap in gaps]) for side in (0, 1))
    log_mass = torch.stack([sent[MASSES[gap][0]].values for gap in gaps])
    valid = _valid([both(*(sent[name].finite for name in (*GAP_LOGPROBS[gap], *MASSES[gap]))) for gap in gaps], above)
    tokens = above.new_full((len(gaps),), above.shape[1]) if valid is None else valid.sum(1).double()
    return {NAME: torch.cat([tokens[None], support_sums(above, below, log_mass, valid)])}


def _policy(sent: Mapping[str, Sent], name: str) -> Tensor:
    """Its log-probs on the support; those of mu are."""
    return on_support(sent[name].values, sent[SUPPORTS[name]].values if name in SUPPORTS else None)


def _valid(masks: Sequence[Tensor | None], values: Tensor) -> Tensor | None:
    """[G, T] bool of as many gaps as values has [G, T]; None where all of all are valid."""
    if all(mask is None for mask in masks):
        return None
    whole = values.new_ones(values.shape[1], dtype=torch.bool)
    return torch.stack([whole if mask is None else mask for mask in masks])


def _gaps(names: Collection[str]) -> list[str]:
    sent = set(names)
    return [gap for gap, masses in MASSES.items() if sent >= {*GAP_LOGPROBS[gap], *masses}]


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of gaps with a token."""
    for index, gap in enumerate(_gaps(view.block.batch.source.columns)):
        sums = dict(zip(("tokens", *SUPPORT_SUMS), arrays[NAME][:, index], strict=True))
        if sums["tokens"]:
            yield f"{NAME}/{gap}", sums
