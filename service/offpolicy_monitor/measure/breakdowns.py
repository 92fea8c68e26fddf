"""Breakdowns: tokens, sum d, |d|, d^2, k3 by bucket of each dimension and gap, and the cross terms of gaps.

Dimensions of sequences add up the sums of sequences that exist anyway; where a whole batch is one bucket, its gaps'
sums are the bucket's. Tables: `breakdown/<dimension>/<gap>` and `.../cross`; with the bucket in the path where the
batch is one.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.cells import Divided
from offpolicy_monitor.measure.dimensions import dimensions
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.breakdown import CROSS_KEYS, GAP_KEYS
from offpolicy_monitor.summary.tables.buckets import constant_buckets

#: In how many copies of the buckets a GPU adds up tokens.
COPIES: Final = 64


def sums_of(view: BlockView) -> dict[str, Divided]:
    """[indices, 1 + columns] of each dimension: a count of all, and sums; the last index is no bucket."""
    found, sums = list(dimensions(view.block, view.origin)), dict[str, Divided]()
    for per_token, columns in zip((True, False), _columns(view), strict=True):
        own = {one.name: (one.indices, one.size) for one in found if one.per_token == per_token}
        sums[f"breakdown/{'tokens' if per_token else 'sequences'}"] = Divided(own, columns, COPIES if per_token else 1)
    return sums


def _columns(view: BlockView) -> tuple[list[Tensor], list[Tensor]]:
    """What is summed per token [T] and per sequence [N]: GAP_KEYS of each gap, the cross terms, and valid tokens.

    The latter of each gap and of those valid for all, and per token only where some are not valid.
    """
    gaps, number = view.gaps, view.number
    columns = gaps.columns
    per_token = (columns.log_ratio, columns.log_ratio_abs, columns.log_ratio_square, columns.k3)
    per_sequence = (gaps.sums.log_ratio, gaps.sums.log_ratio_abs, gaps.sums.log_ratio_square, gaps.sums.k3)
    of_tokens, of_sequences = ([v for part in zip(*(s.unbind()[:number] for s in sums), strict=True) for v in part]
                               for sums in (per_token, per_sequence))  # fmt: skip
    if joint := view.block.batch.joint:
        mismatch, staleness = joint["mismatch"], joint["staleness"]
        of_tokens += [columns.log_ratio_square[mismatch], columns.log_ratio_square[staleness], gaps.product]
        square = gaps.sums.log_ratio_square
        of_sequences += [square[mismatch], square[staleness], gaps.product_of_sequences]
    indices = [*range(number), *([joint["mismatch"]] if joint else ())]
    if view.valid_and_joint is not None:
        of_tokens += view.valid_and_joint.unbind()
    return of_tokens, [*of_sequences, *(gaps.counts[index] for index in indices)]


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of gaps with a token, and the cross terms' if some token is valid for all."""
    gaps, tokens = view.block.batch.gaps, arrays["gaps/tokens"]
    parts = [(index, gap, GAP_KEYS, index * len(GAP_KEYS)) for index, gap in enumerate(gaps) if tokens[index]]
    if view.block.batch.joint and arrays["cross/tokens"]:
        parts.append((len(gaps), "cross", CROSS_KEYS, len(gaps) * len(GAP_KEYS)))
    columns = len(gaps) * len(GAP_KEYS) + (len(CROSS_KEYS) if view.block.batch.joint else 0)
    for name in (name for name in arrays if name.startswith("breakdown/")):
        dimension, (counts, *sums) = name.rpartition("/")[2], arrays[name][:-1].T
        for index, part, keys, first in parts:
            valid = sums[columns + index] if len(sums) > columns else counts
            yield f"breakdown/{dimension}/{part}", {"tokens": valid, **dict(zip(keys, sums[first:], strict=False))}
    for dimension, bucket in constant_buckets(view.origin.shard, view.origin.labels):
        for index, part, keys, _ in parts:
            record = {key: arrays[f"cross/{key}"] if part == "cross" else arrays[f"gaps/{key}"][index] for key in keys}
            whole = arrays["cross/tokens"] if part == "cross" else tokens[index]
            yield f"breakdown/{dimension}/{bucket}/{part}", {"tokens": whole, **record}
