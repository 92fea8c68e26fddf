"""The worst sequences of a summary: as many as rankings hold, each one of the batch, with figures that fit its gaps.

Lists are checked before they are read (`check_worst_tree`), values after. Knows summary.worst and its stored form.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.checks.faults import about_at_most, is_text, need
from offpolicy_monitor.summary.checks.forms import check_number, join
from offpolicy_monitor.summary.checks.structure import check_record
from offpolicy_monitor.summary.sums import LARGEST_COUNT
from offpolicy_monitor.summary.tables.worst import (
    GAPS,
    LARGEST,
    LOGPROBS,
    MOST,
    RANKINGS,
    Position,
    Worst,
    WorstSequence,
)

MOST_SEQUENCES: Final = MOST * len(RANKINGS)
#: Raw tokens kept of a sequence.
MOST_TOKENS: Final = 4096
_LISTS: Final = ("shard", "index", "tokens")


def check_worst_tree(tree: Mapping[str, Any], ids: Sequence[Any]) -> None:
    """Raise InvalidSummaryError where the columns of the worst sequences do not have one entry a sequence."""
    if not tree:
        need(not ids, "worst", "has ids of no sequences")
        return
    need(set(tree) | {"columns"} == {*_LISTS, "gaps", "positions", "columns"}, "worst", "has other columns")
    number = len(tree["index"]) if isinstance(tree["index"], list) else 0
    need(0 < number <= MOST_SEQUENCES, "worst.index", f"must be 1 to {MOST_SEQUENCES} sequences")
    for name in _LISTS:
        _check_list(join("worst", name), tree[name], number)
    need(len(ids) in (0, number), "worst.id", f"must be {number}, or none")
    need(isinstance(tree["gaps"], dict) and set(tree["gaps"]) <= set(GAPS), "worst.gaps", "has no such gap")
    for gap, columns in tree["gaps"].items():
        _check_gap_tree(join("worst.gaps", gap), columns, number)
    _check_positions("worst.positions", tree["positions"], number)
    if "columns" in tree:
        _check_columns(tree["columns"], number)


def _check_gap_tree(path: str, columns: Any, number: int) -> None:
    need(isinstance(columns, dict), path, "must be an object")
    names = set(columns) | {"tokens"}
    need(names == {"log_geometric_ratio", "k3_sum", "tokens"}, path, "has other columns")
    places = {str(place) for place in range(number)}
    for name, column in columns.items():
        check_record(join(path, name), column)
        need(set(column) <= places, join(path, name), "is of no sequence")
    same = set(columns["log_geometric_ratio"]) == set(columns["k3_sum"]) >= set(columns.get("tokens", {}))
    need(same, path, "has columns of other sequences")


def _check_positions(path: str, tree: Any, groups: int) -> None:
    need(isinstance(tree, dict) and set(tree) <= {"number", "position", *LOGPROBS}, path, "has other columns")
    _check_list(f"{path}.number", tree.get("number"), groups)
    rows = sum(tree["number"])
    _check_list(f"{path}.position", tree.get("position"), rows)
    for name in LOGPROBS:
        check_record(join(path, name), tree.get(name, {}))
        need(set(tree.get(name, {})) <= {str(row) for row in range(rows)}, join(path, name), "is of no position")


def _check_columns(tree: Any, number: int) -> None:
    path = "worst.columns"
    need(isinstance(tree, dict) and set(tree) == {"sequence", "places", "tokens"}, path, "has other columns")
    need(isinstance(tree["sequence"], list), f"{path}.sequence", "must be a list")
    kept = len(tree["sequence"])
    _check_list(f"{path}.sequence", tree["sequence"], kept)
    _check_list(f"{path}.places", tree["places"], kept)
    need(len(set(tree["sequence"])) == kept <= number, f"{path}.sequence", "repeats")
    need(all(place < number for place in tree["sequence"]), f"{path}.sequence", "is of no sequence")
    _check_positions(f"{path}.tokens", tree["tokens"], kept)


def _check_list(path: str, values: Any, number: int) -> None:
    need(isinstance(values, list) and len(values) == number, path, f"must be a list of {number}")
    whole = all(type(value) is int and 0 <= value <= LARGEST_COUNT for value in values)
    need(whole, path, "must be whole numbers from 0 on")


def check_worst(worst: Worst, facts: Facts) -> None:
    """Raise InvalidSummaryError where a sequence cannot be one of this shard's."""
    indices = [sequence.index for sequence in worst.sequences]
    need(len(set(indices)) == len(indices), "worst.index", "repeats")
    for sequence in worst.sequences:
        _check_sequence(sequence, facts, f"worst.{sequence.index}")


def _check_sequence(sequence: WorstSequence, facts: Facts, path: str) -> None:
    shard = facts.shard
    need(sequence.shard == shard.number, join(path, "shard"), f"must be {shard.number}")
    need(sequence.index < facts.summary.batch["sequences"], path, "is not among the sequences of the batch")
    need(0 < sequence.tokens <= facts.whole["tokens"], join(path, "tokens"), "are not those of a sequence")
    _check_id(sequence, facts, join(path, "id"))
    need(bool(sequence.gaps), join(path, "gaps"), "required")
    _check_gaps(sequence, facts, f"{path}.gaps")
    need(len(sequence.positions) <= len(GAPS), join(path, "positions"), f"are more than {len(GAPS)}")
    _check_tokens(sequence.positions, facts, join(path, "positions"))
    if sequence.columns is not None:
        places, tokens = sequence.columns
        need(1 <= places <= shard.keep_worst, join(path, "columns"), "are not kept here: OFFPOLICY_KEEP_WORST")
        need(len(tokens) <= min(MOST_TOKENS, sequence.tokens), join(path, "columns"), "are too many tokens")
        _check_tokens(tokens, facts, join(path, "columns"))


def _check_gaps(sequence: WorstSequence, facts: Facts, path: str) -> None:
    for gap, figures in sequence.gaps.items():
        of_gap = join(path, gap)
        facts.check_gap(gap, of_gap)
        most = min(sequence.tokens, facts.count(gap))
        need(0 < figures.tokens <= most, join(of_gap, "tokens"), f"must be from 1 to {most}")
        check_number(join(of_gap, "log_geometric_ratio"), "number", figures.log_geometric_ratio)
        check_number(join(of_gap, "k3_sum"), "magnitude", figures.k3_sum)
        need(figures.k3_sum <= LARGEST, join(of_gap, "k3_sum"), "is beyond float32")
        inside = about_at_most(abs(figures.log_geometric_ratio), figures.abs_log_ratio_max)
        need(inside, join(of_gap, "log_geometric_ratio"), "is beyond its largest log-ratio")
        need(about_at_most(figures.k3_sum, facts.summary.gaps[gap].sums["k3"]), join(of_gap, "k3_sum"), "is too large")


def _check_id(sequence: WorstSequence, facts: Facts, path: str) -> None:
    ids, longest = facts.shard.sequence_ids, facts.shard.longest_id
    need(sequence.id is None or is_text(sequence.id), path, "must be a string without control characters")
    need(len(sequence.id or "") <= longest, path, f"is over {longest} characters (OFFPOLICY_MAX_SEQUENCE_ID_LENGTH)")
    need(ids is None or ids[sequence.index] == sequence.id, path, "is not that of sequence_ids")


def _check_tokens(tokens: Sequence[Position], facts: Facts, path: str) -> None:
    places = [token.position for token in tokens]
    need(all(before < after for before, after in pairwise(places)), path, "must ascend")
    need(not places or places[-1] < facts.shard.longest_sequence, path, "are beyond the longest sequence")
    for token in tokens:
        for value in token.logprobs:
            if value is not None:
                check_number(path, "number", value)
