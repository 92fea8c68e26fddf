"""What tables say that they need: a batch that lacks some of it has no such table, and one that has it all does."""

from collections.abc import Iterator
from functools import cache
from urllib.parse import unquote

import numpy as np
import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.methods import parse_selection
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.rows import EXPERTS_OF_GAP, OF_GAP, PART, POLICY_VERSION
from offpolicy_monitor.summary.tables import KINDS
from offpolicy_monitor.summary.tables.routing import EXPERTS
from offpolicy_monitor.vocabulary import EXPERT_IDS, GAP_LOGPROBS, GAPS, RESCORED, SUPPORTS

from tests.figures.everything import ROWS
from tests.summary.full import LABELS, MEASURER, full_batch

SENT = full_batch()
#: With rows that ask for what is kept for them alone.
METHODS = {
    row.name: row
    for row in parse_selection(
        [*ROWS, *({"name": name, "method": name, "threshold": 1e-3} for name in ("m2po_paper", "vaco"))]
    )
}


@cache
def measured_without(missing: str) -> StepSummary:
    """The summary of every array but one, or of a shard without its version; some tokens agree to the bit."""
    columns = {name: values.copy() for name, values in SENT.columns.items()}
    columns["old_logprobs"][::2] = columns["sampling_logprobs"][::2]
    for name in EXPERT_IDS:
        columns[name][::2] = 0
    columns.pop(missing, None)
    of_tokens = {name: values for name, values in columns.items() if name in SENT.per_token}
    of_sequences = {name: values for name, values in columns.items() if name not in SENT.per_token}
    batch = RaggedBatch.from_positions(np.diff(SENT.offsets), of_tokens, of_sequences)
    origin = Origin(None if missing == POLICY_VERSION else 12, 3, LABELS)
    return MEASURER.measure(batch, tuple(METHODS.values()), origin)


def needed_at(key: str) -> Iterator[str]:
    """The arrays, and the field of the envelope, that the table at a key needs, and the method row in its path."""
    parts = key.partition(PART)[0].split("/")
    row = METHODS.get(unquote(parts[1])) if parts[0] in ("methods", "anchor", "masked") else None
    gap = row.gap if row else next(filter(GAPS.__contains__, parts), "")
    for name in LAYOUT.at(key).needs:
        if name == EXPERTS_OF_GAP:
            yield from EXPERTS[gap]
        else:
            yield from GAP_LOGPROBS.get(gap if name == OF_GAP else name, (name,))
    if row is not None and row.needs_advantages:
        yield "advantages"


def test_a_batch_with_everything_has_every_table() -> None:
    summary = measured_without("nothing")
    found = {LAYOUT.at(key).declared for key in summary.arrays.scheme.keys}
    assert found == {table.key for table in LAYOUT.tables}


@pytest.mark.parametrize("missing", [*SENT.columns, POLICY_VERSION])
def test_without_what_tables_need_there_are_none_of_these_and_all_others(missing: str) -> None:
    before, after = (set(measured_without(name).arrays.scheme.keys) for name in ("nothing", missing))
    assert before - after == {key for key in before if missing in needed_at(key)}


def test_what_is_measured_only_for_some_arrays_follows_from_what_tables_need() -> None:
    found = {kind.name: kind.sent for kind in KINDS if kind.measured and kind.sent}
    assert found == {
        "versions": {"policy_versions"},
        "noise_floor": {*RESCORED},
        "support": {*SUPPORTS.values()},
        "routing": {*EXPERT_IDS},
    }
