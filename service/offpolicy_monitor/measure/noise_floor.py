"""Noise floor: what the engine's prefill and a second pass of the trainer differ from the log-probs that were sent by.

A token counts for a part where both of the part's log-probs are finite, for the split of the mismatch where all three
are. Tables: `noise_floor/<part>`, `noise_floor/split` and `noise_floor/beside`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from offpolicy_monitor.batch import Array
from offpolicy_monitor.measure.differences import Asked, Difference, Found
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.noise_floor import BESIDE, NAME, OF_MISMATCH, PARTS, SPLIT
from offpolicy_monitor.vocabulary import OLD, RESCORED, SAMPLING


def asked(sent: Collection[str]) -> Asked:
    """Of the parts that were sent the sums, and positive log-probs; products of those of the two tables of three."""
    parts, split, beside = _parts(sent), _split(sent), _beside(sent)
    products = (*beside[1:], *split, *beside[:1])
    return Asked(products, sums=tuple(map(_part, parts)), above=tuple((_rescored(part), 0.0) for part in parts))


def _parts(sent: Collection[str]) -> Sequence[str]:
    return [part for part, pair in PARTS.items() if set(sent) >= set(pair)]


def _part(part: str, *beside: str) -> Difference:
    above, below = PARTS[part]
    return Difference((above,), (below,), beside)


def _rescored(part: str) -> Difference:
    """The log-prob of a part that was computed once more, over the tokens of the part."""
    [name] = set(PARTS[part]) & set(RESCORED)
    return Difference((name,), beside=PARTS[part])


def _split(sent: Collection[str]) -> Sequence[Difference]:
    """The parts of the mismatch over the tokens of both; none unless there are both."""
    names = tuple(dict.fromkeys(name for part in OF_MISMATCH for name in PARTS[part]))
    return [_part(part, *names) for part in OF_MISMATCH] if set(sent) >= set(names) else []


def _beside(sent: Collection[str]) -> Sequence[Difference]:
    """The trainer's part and the mismatch, over the tokens of both; none unless there are both."""
    names = (*PARTS["trainer"], SAMPLING)
    return [_part("trainer", *names), Difference((OLD,), (SAMPLING,), names)] if set(sent) >= set(names) else []


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of what has a token."""
    sent, found = view.block.batch.source.columns, Found(view.differences, arrays)
    for part in _parts(sent):
        own = _part(part)
        if tokens := found.tokens(own):
            sums = found.sums(own)
            exact, positive = tokens - sums.pop("changed_tokens"), found.above(_rescored(part), 0.0)
            yield f"{NAME}/{part}", {**sums, "tokens": tokens, "exact_tokens": exact, "positive_tokens": positive}
    for table, rows, names in ((SPLIT, _split(sent), OF_MISMATCH), (BESIDE, _beside(sent), ("trainer", "mismatch"))):
        if rows and (tokens := found.tokens(rows[0])):
            squares = {f"{name}_square": found.product(x, x) for name, x in zip(names, rows, strict=True)}
            product = {"_".join(names): found.product(*rows)} if table == SPLIT else {}
            yield table, {"tokens": tokens, **squares, **product}
