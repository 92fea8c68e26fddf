"""The writer commits what is waiting in one transaction, and answers each shard with its own outcome."""

import asyncio
import sys
import threading
from collections.abc import Sequence

import pytest
from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.pipeline.workers import JobError
from offpolicy_monitor.pipeline.writer import Writer
from offpolicy_monitor.store import Receipt, ShardKey, ShardRecord
from offpolicy_monitor.summary.step import StepSummary


def record(shard: int) -> ShardRecord:
    return ShardRecord(ShardKey("r", 0, 0, 0, shard), 64, bytes(16), StepSummary(), 0.0)


class Database:
    """Answers each record with a receipt that tells its shard by `received_shards`; waits in `ingest` while shut."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.open = threading.Event()
        self.begun = threading.Event()

    def ingest(self, records: Sequence[ShardRecord]) -> list[Receipt | Refusal]:
        self.begun.set()
        assert self.open.wait(10)
        self.groups.append([record.key.shard for record in records])
        return [self.answer(record) for record in records]

    def answer(self, record: ShardRecord) -> Receipt | Refusal:
        if record.key.shard == 13:
            return Refusal(409, "conflict", "other content")
        return Receipt(False, record.key.shard, 64, False, False, record.summary)


class Away(Database):
    def ingest(self, records: Sequence[ShardRecord]) -> list[Receipt | Refusal]:
        if not self.groups:
            self.groups.append([])
            raise Unavailable(503, "store-unavailable", "the database is away")
        return super().ingest(records)


def test_shards_that_wait_during_a_commit_share_the_next_one() -> None:
    async def scenario() -> None:
        database = Database()
        writer = Writer(database)
        tasks = [asyncio.create_task(writer.ingest(record(0)))]
        while not database.begun.is_set():
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(writer.ingest(record(shard))) for shard in (1, 2, 3)]
        await asyncio.sleep(0.02)
        database.open.set()
        receipts = await asyncio.gather(*tasks)
        writer.close()
        assert database.groups == [[0], [1, 2, 3]]
        assert [receipt.received_shards for receipt in receipts] == [0, 1, 2, 3]

    asyncio.run(scenario())


def test_a_refused_shard_does_not_refuse_its_group() -> None:
    async def scenario() -> None:
        database = Database()
        database.open.set()
        writer = Writer(database)
        first, second = await asyncio.gather(
            writer.ingest(record(13)), writer.ingest(record(14)), return_exceptions=True
        )
        writer.close()
        assert isinstance(first, Refusal) and first.status == 409
        assert isinstance(second, Receipt) and second.received_shards == 14

    asyncio.run(scenario())


def test_the_writer_outlives_a_database_that_was_away() -> None:
    async def scenario() -> None:
        database = Away()
        database.open.set()
        writer = Writer(database)
        with pytest.raises(Unavailable):
            await writer.ingest(record(1))
        assert (await writer.ingest(record(2))).received_shards == 2
        writer.close()

    asyncio.run(scenario())


class Defective(Database):
    """Fails every transaction that holds shard 13."""

    def answer(self, record: ShardRecord) -> Receipt | Refusal:
        if record.key.shard == 13:
            raise ValueError("this shard cannot be written")
        return super().answer(record)


def test_a_shard_that_breaks_its_transaction_does_not_break_those_of_its_group() -> None:
    async def scenario() -> None:
        database = Defective()
        writer = Writer(database)
        tasks = [asyncio.create_task(writer.ingest(record(0)))]
        while not database.begun.is_set():
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(writer.ingest(record(shard))) for shard in (1, 13, 2)]
        await asyncio.sleep(0.02)
        database.open.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        assert database.groups == [[0], [1, 13, 2], [1], [13], [2]]
        assert isinstance(answers[2], ValueError)
        assert [answer.received_shards for answer in answers if isinstance(answer, Receipt)] == [0, 1, 2]

    asyncio.run(scenario())


def test_a_group_that_met_no_database_is_not_tried_again_shard_by_shard() -> None:
    async def scenario() -> None:
        database = Away()
        database.open.set()
        writer = Writer(database)
        answers = await asyncio.gather(*(writer.ingest(record(shard)) for shard in (1, 2, 3)), return_exceptions=True)
        writer.close()
        away = [answer for answer in answers if isinstance(answer, Unavailable)]
        assert len(away) + sum(map(len, database.groups)) == 3
        assert away

    asyncio.run(scenario())


def test_calls_take_their_turn_and_raise_their_own_errors() -> None:
    async def scenario() -> None:
        database = Database()
        database.open.set()
        writer = Writer(database)
        ingested = asyncio.create_task(writer.ingest(record(1)))
        assert await writer.call(lambda: list(database.groups)) in ([], [[1]])
        await ingested
        assert await writer.call(lambda: list(database.groups)) == [[1]]
        with pytest.raises(ZeroDivisionError):
            await writer.call(lambda: 1 // 0)
        writer.close()

    asyncio.run(scenario())


def test_closing_writes_what_is_queued() -> None:
    async def scenario() -> None:
        database = Database()
        writer = Writer(database, max_group=2)
        tasks = [asyncio.create_task(writer.ingest(record(shard))) for shard in range(5)]
        await asyncio.sleep(0.02)
        database.open.set()
        await asyncio.to_thread(writer.close)
        receipts = await asyncio.gather(*tasks)
        assert [receipt.received_shards for receipt in receipts] == [0, 1, 2, 3, 4]
        assert all(len(group) <= 2 for group in database.groups)

    asyncio.run(scenario())


def test_the_seconds_of_each_transaction_are_told() -> None:
    async def scenario() -> None:
        seconds: list[float] = []
        database = Database()
        database.open.set()
        writer = Writer(database, seconds.append)
        await writer.ingest(record(1))
        writer.close()
        assert len(seconds) == 1 and seconds[0] >= 0

    asyncio.run(scenario())


class Unruly(Database):
    """Raises, for shard 13, what no future can hold, and answers shard 14 with too few receipts."""

    def ingest(self, records: Sequence[ShardRecord]) -> list[Receipt | Refusal]:
        shards = {record.key.shard for record in records}
        if 13 in shards:
            raise StopIteration("no more")
        return [] if 14 in shards else super().ingest(records)


def test_the_thread_outlives_whatever_a_transaction_or_a_call_raises() -> None:
    async def scenario() -> None:
        database = Unruly()
        database.open.set()
        writer = Writer(database)
        for shard in (13, 14):
            with pytest.raises(Exception, match=r"StopIteration|0 answers to 1 records"):
                await asyncio.wait_for(writer.ingest(record(shard)), 30)
        with pytest.raises(JobError):
            await asyncio.wait_for(writer.call(lambda: sys.exit(3)), 30)
        assert (await asyncio.wait_for(writer.ingest(record(2)), 30)).received_shards == 2
        writer.close()

    asyncio.run(scenario())


class Named(Database):
    """Notes which thread ingests."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []

    def ingest(self, records: Sequence[ShardRecord]) -> list[Receipt | Refusal]:
        self.threads.append(threading.current_thread().name)
        return super().ingest(records)


async def brought(writer: Writer, shard: int, name: str = "mine") -> "asyncio.Future[Receipt]":
    """A shard that a thread of this name has brought, once the one before it is over; what is waited for."""
    while writer.is_writing and not writer.ages:
        await asyncio.sleep(0.001)
    done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    thread = threading.Thread(target=lambda: writer.write(record(shard), done), name=name, daemon=True)
    thread.start()
    return done


def test_a_shard_is_written_by_the_thread_that_brings_it_once_a_transaction_was_quick() -> None:
    async def scenario() -> None:
        database = Named()
        database.open.set()
        writer = Writer(database)
        for shard in (1, 2, 3):
            receipt = await asyncio.wait_for(await brought(writer, shard), 30)
            assert receipt.received_shards == shard
        with pytest.raises(Refusal):
            await asyncio.wait_for(await brought(writer, 13), 30)
        assert database.threads == ["store", "mine", "mine", "mine"]
        assert writer.ages.oldest() == 0
        writer.close()

    asyncio.run(scenario())


def test_shards_that_come_while_another_thread_writes_wait_for_it_and_share_a_transaction() -> None:
    async def scenario() -> None:
        database = Named()
        database.open.set()
        writer = Writer(database)
        await writer.ingest(record(0))
        database.open.clear()
        database.begun.clear()
        first = await brought(writer, 1)
        await asyncio.to_thread(database.begun.wait, 10)
        others = [asyncio.create_task(writer.ingest(record(2))), await brought(writer, 3), await brought(writer, 4)]
        called = asyncio.create_task(writer.call(lambda: len(database.groups)))
        await asyncio.sleep(0.05)
        assert database.groups == [[0]]
        database.open.set()
        await asyncio.gather(first, *others)
        assert await called == 3
        assert [sorted(group) for group in database.groups] == [[0], [1], [2, 3, 4]]
        assert database.threads == ["store", "mine", "store"]
        writer.close()

    asyncio.run(scenario())


def test_with_a_slow_database_shards_gather_for_the_thread_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("offpolicy_monitor.pipeline.writer.QUICK", 0.0)
        database = Named()
        database.open.set()
        writer = Writer(database)
        for shard in (1, 2):
            await asyncio.wait_for(await brought(writer, shard), 30)
        assert database.threads == ["store", "store"]
        writer.close()

    asyncio.run(scenario())


def test_who_waits_for_another_thread_that_writes_for_too_long_is_answered() -> None:
    async def scenario() -> None:
        database = Named()
        database.open.set()
        writer = Writer(database, patience=0.2)
        await writer.ingest(record(0))
        database.open.clear()
        with pytest.raises(Unavailable, match="did not answer"):
            await asyncio.wait_for(await brought(writer, 1), 30)
        with pytest.raises(Unavailable, match="did not answer"):
            await asyncio.wait_for(writer.ingest(record(2)), 30)
        database.open.set()
        await asyncio.to_thread(writer.close)
        assert database.groups == [[0], [1]]

    asyncio.run(scenario())


def test_nobody_waits_for_a_thread_that_has_ended() -> None:
    async def scenario() -> None:
        writer = Writer(Database())
        writer.close()
        with pytest.raises(Unavailable, match="has ended"):
            await asyncio.wait_for(writer.ingest(record(1)), 30)
        with pytest.raises(Unavailable, match="has ended"):
            await asyncio.wait_for(await brought(writer, 2), 30)
        assert writer.ages.oldest() == 0

    asyncio.run(scenario())


def test_what_runs_in_the_background_lets_shards_go_first_but_not_for_ever() -> None:
    async def scenario() -> None:
        database = Database()
        writer = Writer(database, max_group=2)
        done: list[int] = []
        tasks = [asyncio.create_task(writer.ingest(record(0)))]
        while not database.begun.is_set():
            await asyncio.sleep(0.001)
        aside = asyncio.create_task(writer.aside(lambda: done.append(len(database.groups))))
        await asyncio.sleep(0.02)
        tasks += [asyncio.create_task(writer.ingest(record(shard))) for shard in range(1, 9)]
        await asyncio.sleep(0.02)
        database.open.set()
        await asyncio.gather(*tasks, aside)
        assert done == [5]
        writer.close()

    asyncio.run(scenario())


def test_work_of_the_background_comes_to_its_turn_among_shards_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("offpolicy_monitor.pipeline.writer.PATIENCE", 0.05)
        database = Database()
        database.open.set()
        writer = Writer(database, max_group=1)
        over = asyncio.Event()

        async def post() -> None:
            while not over.is_set():
                await writer.ingest(record(1))

        posting = [asyncio.create_task(post()) for _ in range(4)]
        await asyncio.sleep(0.01)
        await asyncio.wait_for(writer.aside(lambda: None), 10)
        over.set()
        await asyncio.gather(*posting)
        writer.close()

    asyncio.run(scenario())


def test_work_of_the_background_is_refused_where_the_writer_closes_first() -> None:
    async def scenario() -> None:
        database = Database()
        writer = Writer(database)
        shard = asyncio.create_task(writer.ingest(record(1)))
        while not database.begun.is_set():
            await asyncio.sleep(0.001)
        aside = asyncio.create_task(writer.aside(lambda: None))
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(asyncio.to_thread(writer.close))
        await asyncio.sleep(0.01)
        database.open.set()
        await closing
        with pytest.raises(Unavailable):
            await aside
        with pytest.raises(Unavailable):
            await writer.aside(lambda: None)
        await shard

    asyncio.run(scenario())


def test_nobody_waits_longer_than_said_and_what_was_given_up_is_not_written() -> None:
    async def scenario() -> None:
        database = Database()
        writer = Writer(database, patience=0.2)
        tasks = [asyncio.create_task(writer.ingest(record(0)))]
        while not database.begun.is_set():
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(writer.ingest(record(shard))) for shard in (1, 2)]
        calls: list[str] = []
        called = asyncio.create_task(writer.call(lambda: calls.append("called")))
        answers = await asyncio.wait_for(asyncio.gather(*tasks, called, return_exceptions=True), 30)
        assert [isinstance(answer, Unavailable) for answer in answers] == [True] * 4
        assert all(answer.retry_after > 0 for answer in answers if isinstance(answer, Unavailable))
        assert "send it again" in str(answers[0])
        database.open.set()
        assert (await writer.ingest(record(3))).received_shards == 3
        writer.close()
        assert (database.groups, calls) == ([[0], [3]], [])

    asyncio.run(scenario())


def test_closing_does_not_wait_for_a_transaction_that_hangs() -> None:
    async def scenario() -> None:
        database = Database()
        writer = Writer(database, patience=0.2)
        with pytest.raises(Unavailable):
            await writer.ingest(record(0))
        await asyncio.wait_for(asyncio.to_thread(writer.close), 30)
        database.open.set()

    asyncio.run(scenario())


def test_a_transaction_that_hangs_is_the_oldest_job_though_nobody_waits_for_it() -> None:
    async def scenario() -> None:
        database = Database()
        writer = Writer(database, patience=0.05)
        with pytest.raises(Unavailable):
            await writer.ingest(record(1))
        assert writer.ages.oldest() >= 0.04
        database.open.set()
        await asyncio.to_thread(writer.close)
        assert writer.ages.oldest() == 0

    asyncio.run(scenario())
