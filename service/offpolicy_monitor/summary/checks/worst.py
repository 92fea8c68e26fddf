"""The worst sequences of a summary: as many as rankings hold, each one of the batch, with figures that fit its gaps.

Knows summary.tables.worst.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from offpolicy_monitor.summary.checks.bounds import LARGEST_NUMBER
from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.faults import InvalidSummaryError, about_at_most, is_text, join, need
from offpolicy_monitor.summary.stored.worst_columns import MOST_TOKENS, StoredColumns, most_numbers
from offpolicy_monitor.summary.tables.worst import (
    GAPS,
    LARGEST,
    MOST,
    RANKINGS,
    GapFigures,
    Position,
    Value,
    Worst,
    WorstSequence,
)
from offpolicy_monitor.vocabulary import TEXT_MUST

MOST_SEQUENCES: Final = MOST * len(RANKINGS)


def check_worst(worst: Worst, facts: Facts) -> None:
    """Raise InvalidSummaryError where a sequence cannot be one of this shard's."""
    most = most_numbers(MOST_SEQUENCES, facts.shard.keep_worst * len(RANKINGS))
    for source in worst.sources:
        found = source.numbers if isinstance(source, StoredColumns) else 0
        need(found <= most, "worst", f"must be {most} numbers at most, and has {found}")
    need(len(worst.sequences) <= MOST_SEQUENCES, "worst", f"must be {MOST_SEQUENCES} sequences at most")
    indices = [sequence.index for sequence in worst.sequences]
    need(len(set(indices)) == len(indices), "worst.index", "repeats")
    for sequence in worst.sequences:
        try:
            _check_sequence(sequence, facts)
        except InvalidSummaryError as error:
            raise error.inside(f"worst.{sequence.index}") from error


# Paths are those below the sequence, or below its gap: whole ones would be put together for every number that is right.
def _check_sequence(sequence: WorstSequence, facts: Facts) -> None:
    shard = facts.shard
    whole = all([type(value) is int for value in (sequence.shard, sequence.index, sequence.tokens)])
    need(whole and sequence.index >= 0, "", "must be whole numbers from 0 on")
    need(sequence.shard == shard.number, "shard", f"must be {shard.number}")
    need(sequence.index < facts.summary.batch["sequences"], "", "is not among the sequences of the batch")
    need(0 < sequence.tokens <= facts.whole["tokens"], "tokens", "are not those of a sequence")
    _check_id(sequence, facts)
    need(bool(sequence.gaps), "gaps", "required")
    for gap, figures in sequence.gaps.items():
        try:
            _check_gap(gap, figures, sequence.tokens, facts)
        except InvalidSummaryError as error:
            raise error.inside(join("gaps", gap)) from error
    need(len(sequence.positions) <= len(GAPS), "positions", f"are more than {len(GAPS)}")
    _check_tokens(sequence.positions, facts, "positions")
    if sequence.columns is not None:
        ranks, tokens, beside = sequence.columns
        need(1 <= ranks <= shard.keep_worst, "columns", "are not kept here: OFFPOLICY_KEEP_WORST")
        need(len(tokens) <= min(MOST_TOKENS, sequence.tokens), "columns", "are too many tokens")
        _check_tokens(tokens, facts, "columns")
        for name, numbers in beside.items():
            _check_beside(numbers, len(tokens), f"columns.{name}")


def _check_gap(gap: str, figures: GapFigures, tokens: int, facts: Facts) -> None:
    facts.check_gap(gap, "")
    most = min(tokens, facts.count(gap))
    need(0 < figures.tokens <= most, "tokens", f"must be from 1 to {most}")
    need(_is_number(figures.log_geometric_ratio), "log_geometric_ratio", "must be a finite fraction")
    need(0 <= figures.k3_sum <= LARGEST, "k3_sum", "is negative or beyond float32")
    inside = about_at_most(abs(figures.log_geometric_ratio), figures.abs_log_ratio_max)
    need(inside, "log_geometric_ratio", "is beyond its largest log-ratio")
    need(about_at_most(figures.k3_sum, facts.summary.gaps[gap].sums["k3"]), "k3_sum", "is too large")


def _check_id(sequence: WorstSequence, facts: Facts) -> None:
    ids, longest = facts.shard.sequence_ids, facts.shard.longest_id
    need(sequence.id is None or is_text(sequence.id), "id", f"must be a string; it {TEXT_MUST}")
    need(len(sequence.id or "") <= longest, "id", f"is over {longest} characters (OFFPOLICY_MAX_SEQUENCE_ID_LENGTH)")
    need(ids is None or ids[sequence.index] == sequence.id, "id", "is not that of sequence_ids")


def _check_tokens(tokens: Sequence[Position], facts: Facts, path: str) -> None:
    positions = [token.position for token in tokens]
    need(all(position >= 0 for position in positions), path, "must be from 0 on")
    need(all(before < after for before, after in pairwise(positions)), path, "must ascend")
    need(not positions or positions[-1] < facts.shard.longest_sequence, path, "are beyond the longest sequence")
    for token in tokens:
        for value in token.logprobs:
            if value is not None:
                need(_is_number(value), path, "must be a finite fraction")


def _check_beside(numbers: Value | tuple[Value, ...], tokens: int, path: str) -> None:
    need(not isinstance(numbers, tuple) or len(numbers) == tokens, path, f"must be {tokens} numbers, or one")
    for value in numbers if isinstance(numbers, tuple) else (numbers,):
        need(value is None or _is_number(value), path, "must be a finite fraction")


def _is_number(value: float) -> bool:
    return abs(value) <= LARGEST_NUMBER
