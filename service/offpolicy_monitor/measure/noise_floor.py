"""Noise floor: what the engine's prefill and a second pass of the trainer differ from the log-probs that were sent by.

A token counts for a part where both of the part's log-probs are finite, for the split of the mismatch where all three
are. Measured beside the gaps, on the device of their batch, and only where such log-probs were sent. Tables:
`noise_floor/<part>`, `noise_floor/split` and `noise_floor/beside`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.rescored import SUMMED, difference, difference_sums
from offpolicy_monitor.measure.beside import Sent, both, number, sent_of
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.noise_floor import BESIDE, NAME, OF_MISMATCH, PARTS, SPLIT
from offpolicy_monitor.vocabulary import OLD, RESCORED, SAMPLING


def sums_of(view: BlockView) -> dict[str, Tensor]:
    """Of the parts that there are [P] each: the sums of difference_sums, tokens, and positive log-probs; of the two
    tables of three log-probs their rows in order."""
    sent = sent_of(view.block)
    parts = _parts(sent)
    if not parts:
        return {}
    valid = {part: both(*(sent[name].finite for name in PARTS[part])) for part in parts}
    apart = {part: _apart(sent, *PARTS[part], valid[part]) for part in parts}
    found = dict(zip(SUMMED, difference_sums(torch.stack([*apart.values()])), strict=True))
    found["tokens"] = torch.stack([number(valid[part], apart[part]) for part in parts])
    found["positive_tokens"] = torch.stack([_positive(sent, part, valid[part]) for part in parts])
    return {f"{NAME}/{name}": sums for name, sums in found.items()} | _of_three(sent, apart, valid)


def _of_three(
    sent: Mapping[str, Sent], apart: Mapping[str, Tensor], valid: Mapping[str, Tensor | None]
) -> dict[str, Tensor]:
    found = {}
    if apart.keys() >= set(OF_MISMATCH):
        first, second = OF_MISMATCH
        found[SPLIT] = _squares(apart[first], apart[second], both(valid[first], valid[second]))
    if SAMPLING in sent and "trainer" in apart:
        of_all = both(valid["trainer"], sent[SAMPLING].finite)
        found[BESIDE] = _squares(apart["trainer"], _apart(sent, OLD, SAMPLING, of_all), of_all)
    return found


def _apart(sent: Mapping[str, Sent], above: str, below: str, valid: Tensor | None) -> Tensor:
    return difference(sent[above].values, sent[below].values, valid)


def _squares(first: Tensor, second: Tensor, valid: Tensor | None) -> Tensor:
    """[4] float64: how many tokens are valid for both differences, and their sums of x^2, y^2 and x y."""
    if valid is not None:
        first, second = where(valid, first, 0.0), where(valid, second, 0.0)
    pair = torch.stack([first, second])
    squares = torch.linalg.vecdot(pair, pair)
    return torch.cat([number(valid, first)[None], squares, torch.linalg.vecdot(first, second)[None]])


def _parts(names: Mapping[str, Any]) -> list[str]:
    return [part for part, pair in PARTS.items() if names.keys() >= set(pair)]


def _positive(sent: Mapping[str, Sent], part: str, valid: Tensor | None) -> Tensor:
    """[]: valid tokens whose log-prob that was computed once more is above 0."""
    positive = next(sent[name].values for name in PARTS[part] if name in RESCORED) > 0
    return (positive if valid is None else positive & valid).sum()


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of what has a token."""
    source = view.block.batch.source.columns
    for index, part in enumerate(_parts(source)):
        sums = {name: arrays[f"{NAME}/{name}"][index] for name in ("tokens", "positive_tokens", *SUMMED)}
        exact = sums["tokens"] - sums.pop("changed_tokens")
        if sums["tokens"]:
            yield f"{NAME}/{part}", {**sums, "exact_tokens": exact}
    if SPLIT in arrays and arrays[SPLIT][0]:
        names = ("tokens", *(f"{part}_square" for part in OF_MISMATCH), "_".join(OF_MISMATCH))
        yield SPLIT, dict(zip(names, arrays[SPLIT], strict=True))
    if BESIDE in arrays and arrays[BESIDE][0]:
        yield BESIDE, dict(zip(("tokens", "trainer_square", "mismatch_square"), arrays[BESIDE], strict=False))
