"""What must hold of the worst sequences that a trainer reduced: as many as rankings hold, each one of the batch, with
figures that fit its gaps.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offpolicy_monitor.summary.arrays import Array
from offpolicy_monitor.summary.faults import about_at_most, each_about_at_most, is_text, need
from offpolicy_monitor.summary.records import SILENT
from offpolicy_monitor.summary.sums import LARGEST_NUMBER
from offpolicy_monitor.summary.tables.worst.columns import (
    BESIDE,
    GAPS,
    LARGEST,
    MOST,
    MOST_TOKENS,
    OF_TOKENS,
    RANKINGS,
    Positions,
    Sequences,
)
from offpolicy_monitor.summary.tables.worst.merge import Worst
from offpolicy_monitor.vocabulary import LARGEST_VERSION, LOGPROBS, TEXT_MUST

if TYPE_CHECKING:
    from offpolicy_monitor.summary.checks.facts import Facts

MOST_SEQUENCES: Final = MOST * len(RANKINGS)


@SILENT  # a signalling NaN
def check_worst(worst: Worst, facts: "Facts") -> None:
    """Raise InvalidSummaryError where a sequence cannot be one of this shard's."""
    most = _most_numbers(MOST_SEQUENCES, facts.shard.keep_worst * len(RANKINGS))
    need(worst.numbers <= most, "worst", f"must be {most} numbers at most, and has {worst.numbers}")
    found = worst.sequences
    need(len(found) <= MOST_SEQUENCES, "worst", f"must be {MOST_SEQUENCES} sequences at most")
    shards, indices, tokens = found.whole.T
    need(bool((indices[1:] > indices[:-1]).all()), "worst.index", "must ascend")
    each = _Each(indices)
    each.need(shards == facts.shard.number, "shard", f"must be {facts.shard.number}")
    each.need(indices < facts.summary.batch["sequences"], "", "is not among the sequences of the batch")
    each.need((tokens > 0) & (tokens <= facts.whole["tokens"]), "tokens", "are not those of a sequence")
    need(bool(tokens.sum() <= facts.whole["tokens"]), "worst.tokens", "are more than those of the batch")
    _check_ids(found, each, facts)
    _check_gaps(found, tokens, each, facts)
    each.need(found.furthest.numbers <= len(GAPS), "positions", f"are more than {len(GAPS)}")
    _check_positions(found.furthest, each, facts, "positions")
    if len(found.kept):
        _check_raw(found, tokens, each, facts)


class _Each(NamedTuple):
    """Says of which sequence something does not hold: by the index in the shard of each that is looked at."""

    indices: Array

    def at(self, rows: Array) -> "_Each":
        """The same of what is looked at of these rows."""
        return _Each(self.indices[rows])

    def need(self, holds: Any, path: str, message: str) -> None:
        """Raise InvalidSummaryError where something does not hold, of sequences or of each of their gaps."""
        if not holds.all():
            row, *number = np.argwhere(~holds)[0].tolist()
            path = path.format(gap=list(GAPS)[number[0]] if number else "")
            need(False, f"worst.{self.indices[row]}.{path}" if path else f"worst.{self.indices[row]}", message)


def _check_gaps(found: Sequences, tokens: Array, each: _Each, facts: "Facts") -> None:
    """The figures of gaps that they have."""
    sums = [facts.summary.gaps[gap].sums if facts.count(gap) else {} for gap in GAPS]
    counts, k3s = (np.array([own.get(name, 0.0) for own in sums]) for name in ("tokens", "k3"))
    there, figures = found.has_gaps, found.gaps.astype(np.float64)
    each.need(there.any(1), "gaps", "required")
    each.need(~there | (counts > 0), "gaps.{gap}", "is of a gap without tokens")
    figures[~there] = 0.0
    own, mean, k3 = figures.transpose(2, 0, 1)
    whole = (own >= there) & (own <= np.minimum(tokens[:, None], counts)) & (own == np.floor(own))
    each.need(whole, "gaps.{gap}.tokens", "must be from 1 to the tokens of the sequence and of the gap")
    size, path = np.abs(mean), "gaps.{gap}.log_geometric_ratio"
    each.need(size <= LARGEST_NUMBER, path, "must be a finite fraction")
    each.need((k3 >= 0) & (k3 <= LARGEST), "gaps.{gap}.k3_sum", "is negative or beyond float32")
    furthest = found.furthest_of_gaps.astype(np.float64)
    each.need(each_about_at_most(size, furthest), path, "is beyond its largest log-ratio")
    each.need(each_about_at_most(k3, k3s), "gaps.{gap}.k3_sum", "is too large")
    for gap, held, whole in zip(GAPS, k3.sum(0).tolist(), k3s.tolist(), strict=True):
        need(about_at_most(held, whole), f"worst.gaps.{gap}.k3_sum", "is more in all of them than in the batch")


def _check_raw(found: Sequences, tokens: Array, each: _Each, facts: "Facts") -> None:
    """The raw tokens of those that are kept, and what was sent beside them."""
    rows, ranks = found.kept.T
    each = each.at(rows)
    each.need((ranks >= 1) & (ranks <= facts.shard.keep_worst), "columns", "are not kept here: OFFPOLICY_KEEP_WORST")
    fits = (found.raw.numbers > 0) & (found.raw.numbers <= np.minimum(tokens[rows], MOST_TOKENS))
    each.need(fits, "columns", "are no token, or too many")
    _check_positions(found.raw, each, facts, "columns")
    for name, own in zip(BESIDE, found.beside, strict=False):
        fits = (own.counts < OF_TOKENS) | ((own.sizes == found.raw.numbers) & (name != "rewards"))
        each.need(fits, f"columns.{name}", "must be as many numbers as tokens, or one")
        of_values = each.at(np.repeat(np.arange(len(rows)), own.sizes))
        of_values.need(_BESIDE[name](own.values), f"columns.{name}", "must be as they are sent")


def _check_ids(found: Sequences, each: _Each, facts: "Facts") -> None:
    ids, longest = facts.shard.sequence_ids, facts.shard.longest_id
    if found.ids is None and ids is None:
        return
    for id_, index in zip(found.ids or [None] * len(found), each.indices.tolist(), strict=True):
        path = f"worst.{index}.id"
        need(id_ is None or is_text(id_), path, f"must be a string; it {TEXT_MUST}")
        need(len(id_ or "") <= longest, path, f"is over {longest} characters (OFFPOLICY_MAX_SEQUENCE_ID_LENGTH)")
        need(ids is None or ids[index] == id_, path, "is not that of sequence_ids")


def _check_positions(found: Positions, each: _Each, facts: "Facts", path: str) -> None:
    """Positions of groups, each of which is of a sequence."""
    positions, groups = found.positions, found.groups
    each = each.at(groups)
    new = np.append(True, groups[1:] != groups[:-1])[: len(groups)]
    new[1:] |= positions[1:] > positions[:-1]
    each.need(new, path, "must ascend")
    each.need(positions < facts.shard.longest_sequence, path, "are beyond the longest sequence")
    each.need(_are_numbers(found.logprobs).all(1), path, "must be a finite fraction")


def _are_numbers(values: Array) -> Array:
    """Of each whether it is a number that can be one, or None."""
    magnitudes = np.abs(values.astype(np.float64))
    found: Array = (magnitudes <= LARGEST_NUMBER) | (magnitudes != magnitudes)
    return found


def _are_versions(values: Array) -> Array:
    return (values >= -1) & (values <= LARGEST_VERSION) & (values.dtype.kind in "iu")


#: What may stand beside raw tokens: of rewards those that are not finite are None.
_BESIDE: Final[Mapping[str, Callable[[Array], Array]]] = {
    "advantages": lambda values: np.abs(values.astype(np.float64)) <= LARGEST_NUMBER,
    "policy_versions": _are_versions,
    "rewards": _are_numbers,
}


def _most_numbers(sequences: int, kept: int) -> int:
    """Numbers that the columns of so many sequences have at most, `kept` of which keep their raw tokens."""
    position = 1 + len(LOGPROBS)
    of_sequence = 3 + len(GAPS) * 3 + 1 + len(GAPS) * position
    of_kept = 2 + 1 + MOST_TOKENS * position + len(BESIDE) * (1 + MOST_TOKENS)
    return sequences * of_sequence + kept * of_kept
