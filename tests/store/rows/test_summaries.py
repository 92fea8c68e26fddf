"""A summary is decoded once, however many ask for it and whatever comes after it."""

from typing import Any

import pytest
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.settled import Settled
from offpolicy_monitor.store.rows.summaries import Summaries
from offpolicy_monitor.summary import stored

from tests.fixtures.shards import make_record


@pytest.fixture
def decoded(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What readers of the store decode from now on."""
    found, read = list[bytes](), stored.from_bytes

    def noted(blob: bytes) -> Any:
        found.append(blob)
        return read(blob)

    monkeypatch.setattr(stored, "from_bytes", noted)
    store._summaries = Summaries(Settled())
    return found


def test_steps_that_were_read_are_not_decoded_again(store: Store, decoded: list[bytes]) -> None:
    store.ingest([make_record(step, tokens=100 + step) for step in range(5)])
    before = store.summaries("r1")
    assert [summary for *_, summary in store.spread_summaries("r1")[0]] == [summary for *_, summary in before]
    assert len(decoded) == 5
    store.ingest([make_record(5, tokens=100)])
    after = store.whole_summaries("r1", most=6)
    assert [summary.step_figures()["tokens"] for _, summary in after] == [100, 101, 102, 103, 104, 100]
    assert len(decoded) == len(set(decoded)) == 6
    assert store.summary("r1", 5)[2] == after[-1][1] and len(decoded) == 6


def test_a_step_that_changes_is_decoded_anew(store: Store, decoded: list[bytes]) -> None:
    store.ingest([make_record(1, minibatch=0, tokens=10)])
    [(_, _, before)] = store.summaries("r1")
    store.ingest([make_record(1, minibatch=0, attempt=1, tokens=30)])
    [(_, _, after)] = store.summaries("r1")
    assert [summary.step_figures()["tokens"] for summary in (before, after)] == [10, 30]


def test_what_is_kept_is_bounded_by_bytes(store: Store, decoded: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    store.ingest([make_record(step, tokens=100 + step) for step in range(3)])
    kept = store._summaries._decoded
    store.summary("r1", 0)
    kept._most = 2 * kept.weight
    for step in (1, 2, 2, 0):
        store.summary("r1", step)
    assert len(decoded) == 4 and kept.weight <= kept._most
