"""Shards: the way of a shard, from its body to a receipt. Of what is kept of it nothing is a view of the body.

A small frame takes three hops: the device's thread reads and measures it and hands it to the writer's, whose receipt
the event loop gets. One that is alone takes two: the thread that measured it writes it as well. One that comes beside
others is read and measured by a helper, if there is one, while the device's thread waits. Any other body is decoded
first, by threads of their own, within a budget of memory.

Which method rows run, and whether a shard is stored already or would be refused, is asked of the store only where this
process does not know the shard to be new (pipeline.remembered). The transaction that stores it decides, and refuses
what was measured by other rows than the run has by then, whichever process changed them: that is measured again. So a
batch posted after a change was answered is stored with the new rows, and nothing waits for the store but writes. What
was read of a body before the store was asked is gone on with afterwards.

A shard that its trainer reduced is not measured again, nor, but by a helper, which measures what it reads, is one
that is known to be stored: a client that gave up on an answer sends it anew. What a client no longer waits for is
dropped until it is being measured; then it is stored too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.pipeline.decoder import Decoder
from offpolicy_monitor.pipeline.device import Device
from offpolicy_monitor.pipeline.expansion import bytes_to_read_summary, header, large_header
from offpolicy_monitor.pipeline.fallbacks import Fallbacks
from offpolicy_monitor.pipeline.helpers.helper import may_take
from offpolicy_monitor.pipeline.helpers.parcel import Asked, Parcel
from offpolicy_monitor.pipeline.helpers.pool import Helpers
from offpolicy_monitor.pipeline.merger import Merger
from offpolicy_monitor.pipeline.readers import Readers
from offpolicy_monitor.pipeline.record import digest_of, dtypes_of, key_of, origin_of, record_of, small
from offpolicy_monitor.pipeline.reduced import METHODS_CHANGED, accepted
from offpolicy_monitor.pipeline.remembered import Remembered, Rows
from offpolicy_monitor.pipeline.rollouts import Key, RolloutCache, RolloutGone
from offpolicy_monitor.pipeline.values import Body, Measured, Measurer, Outcome, Tell
from offpolicy_monitor.pipeline.writer import Writer
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Known, Outdated, Receipt, ShardRecord, prepared
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.frame import MEDIA_TYPE
from offpolicy_monitor.wire.halves import join
from offpolicy_monitor.wire.message import LaterHalf, Message, Reduced
from offpolicy_monitor.wire.schema import Envelope

#: What the store knows of a run, and of a shard of it where one is given: `Store.known`.
LookUp = Callable[[str, ShardRecord | None], Known]
#: A message and its digest.
Read = tuple[Message | Reduced, bytes]
#: Threads that ask the store, and the longest time of a question, its wait for a thread included.
READERS, LOOK_UP_SECONDS = 4, 4.0
#: Which device measures a shard.
Lane = Literal["small", "large"]
#: Shards up to this size are measured beside all else; a frame of such a size is read where it is measured.
SMALL_BYTES: Final = 512 * 1024
#: A reduced shard is read where it is checked too, unless that may take more than so many bytes: of a million tokens it
#: may take 11 MiB.
SMALL_SUMMARY: Final = 16 << 20
#: What a device measures, and the receipt where it was written on the way.
Turn = Callable[[Callable[[], Measured]], Awaitable[tuple[Measured, Receipt | None]]]
#: How often a shard is measured whose rows change meanwhile.
TRIES: Final = 5


@dataclass(frozen=True)
class Work:
    """What is to be done with a body. `known`: what the store answered about it, None where it was not asked."""

    run: str
    body: Body
    tell: Tell
    received_at: float
    known: Known | None = None

    @property
    def is_small_frame(self) -> bool:
        """Whether reading it takes no memory to speak of, and less time than a hop."""
        plain = self.body.encoding == "identity" and self.body.media_type == MEDIA_TYPE
        return plain and len(self.body.data) <= SMALL_BYTES and not large_header(self.body.data)


#: Measures what is to be done, or what was read of it.
Measure = Callable[[Work], Measured]


class Unclear(Exception):
    """Only the store can tell whether a shard is new, or by which rows a half or a reduced shard is to be taken.

    `claim` is its record, whose summary is empty.
    """

    def __init__(self, claim: ShardRecord, envelope: Envelope, is_first_half: bool, go_on: Measure) -> None:
        super().__init__()
        self.claim, self.envelope, self.is_first_half = claim, envelope, is_first_half
        self._go_on: Measure | None = go_on

    def go_on(self, work: Work) -> Measured:
        """Measure what was read, once, with what the store answers; nothing of it is held afterwards."""
        go_on, self._go_on = self._go_on, None
        assert go_on is not None
        return go_on(work)


class Shards:
    """Made inside a running event loop."""

    def __init__(
        self,
        settings: Settings,
        decoder: Decoder,
        devices: Mapping[Lane, Device],
        measurer: Measurer,
        writer: Writer,
        merger: Merger,
        look_up: LookUp,
        metrics: ProcessMetrics,
        counters: RunCounters,
    ) -> None:
        self.halves: RolloutCache[Message] = RolloutCache(settings.rollout_bytes, settings.rollout_ttl)
        self.remembered = Remembered()
        self.fallbacks = Fallbacks(measurer, metrics)
        self.helpers = Helpers(min(settings.measure_processes, settings.measure_threads), decoder.limits)
        self.readers = Readers("look-up", READERS, LOOK_UP_SECONDS, whole=True)
        self._settings, self._decoder, self._devices, self._measurer = settings, decoder, devices, measurer
        self._writer, self._merger, self.look_up = writer, merger, look_up
        self._metrics, self._counters = metrics, counters
        #: Where there are other workers: their half of a key, and what they are told of one that is kept here.
        self.half_elsewhere: Callable[[Key], Awaitable[Message | None]] | None = None
        self.kept_here: Callable[[Key], None] = lambda key: None

    async def ingest(self, run: str, body: Body, tell: Tell) -> Outcome:
        """Decode, measure and store one shard of `run`; raises Refusal or Unavailable, and has then stored nothing."""
        work, sought = Work(run, body, tell, time.time()), False
        for _ in range(TRIES):
            try:
                return await self._outcome(work, *await self._through(work))
            except RolloutGone as gone:
                if sought or not await self._brought_here(gone.key):
                    raise
                sought = True
            except Outdated:
                self.remembered.forget(run)
        raise Unavailable(503, "busy", f"the method rows of {run} change faster than a shard is measured")

    def forget(self, run: str) -> None:
        """A run is deleted."""
        self.halves.forget(run)
        self.remembered.forget(run)

    async def _through(self, work: Work) -> tuple[Measured, Receipt | None]:
        """What was measured, and the receipt unless it is a first half."""
        measured, receipt = await self._measured_or_written(work)
        if receipt is None and not measured.is_first_half:
            receipt = await self._writer.ingest(measured.record)
        return measured, receipt

    async def _measured_or_written(self, work: Work) -> tuple[Measured, Receipt | None]:
        """What was measured, and the receipt where it was written on the way."""
        if work.is_small_frame:
            summary = bytes_to_read_summary(work.body.data, self._decoder.limits)
            if not summary:
                return await self._at_once(work)
            if summary <= SMALL_SUMMARY:
                async with self._decoder.budget.reserve(summary):
                    return await self._at_once(work)
        return await self._decoded_and_measured(work), None

    async def _decoded_and_measured(self, work: Work) -> Measured:
        """What was measured. The message and what is reserved for it end here, before the shard is written."""
        async with self._decoder.decoded(work.body, lambda plain: self._read(work, plain)) as (message, digest):
            lane: Lane = "small" if message.nbytes <= SMALL_BYTES else "large"

            async def turn(job: Callable[[], Measured]) -> tuple[Measured, None]:
                return await self._devices[lane].run(lane, message.nbytes, job, work.body.gone), None

            measured, _ = await self._in_turns(work, turn, partial(self._measured, message, digest))
        return measured

    async def _at_once(self, work: Work) -> tuple[Measured, Receipt | None]:
        """The same of a small frame, without a stop at the event loop."""
        device = self._devices["small"]

        async def turn(job: Callable[[], Measured]) -> tuple[Measured, Receipt | None]:
            found = list[Measured]()

            def store(measured: Measured, done: "asyncio.Future[Any]") -> None:
                found.append(measured)
                if measured.is_first_half:
                    device.give(None, done)
                elif device.is_alone:
                    with device.elsewhere():
                        self._writer.write(measured.record, done)
                else:
                    self._writer.put(measured.record, done)

            receipt = await device.run("small", len(work.body.data), job, work.body.gone, then=store)
            return found[0], receipt

        return await self._in_turns(work, turn, self._helped_or_here)

    async def _in_turns(self, work: Work, turn: Turn, measure: Measure) -> tuple[Measured, Receipt | None]:
        """A turn on a device; where only the store can tell whether the shard is new, a second one once it did."""
        try:
            return await turn(partial(measure, work))
        except Unclear as raised:
            unclear = raised.with_traceback(None)
        known = await self._asked(work.run, unclear)
        if isinstance(known.answer, StepSummary):
            record = unclear.claim.as_stored(known.answer)
            return Measured(unclear.envelope, False, record, b"", time.perf_counter(), known), None
        return await turn(partial(unclear.go_on, replace(work, known=known)))

    def _helped_or_here(self, work: Work) -> Measured:
        """A small frame, by a helper where it comes beside others and one is free."""
        measured = None if self._devices["small"].is_alone else self._helped(work)
        return self._here(work) if measured is None else measured

    def _here(self, work: Work) -> Measured:
        """A small frame, read and measured by this process."""
        with self._metrics.timed("decode"):
            message, digest = self._read(work, work.body.data)
        return self._measured(message, digest, work)

    def _helped(self, work: Work) -> Measured | None:
        """The same by a process beside this one; None where none does it."""
        rows = self.remembered.rows_of(work.run)
        if rows is None or not may_take(bytes(header(work.body.data))) or not self.helpers.want():
            return None
        asked = Asked.of(work.run, work.body.data, rows, work.received_at)
        parcel = self.helpers.ask(asked)
        if parcel is None:
            return None
        for stage, seconds in zip(("decode", "measure"), parcel.seconds, strict=True):
            self._metrics.stage(stage, seconds)
        return self._of_helper(asked, rows, parcel, work)

    def _of_helper(self, asked: Asked, rows: Rows, parcel: Parcel, work: Work) -> Measured:
        """What a helper measured by these rows; measured here where the run has others."""
        by = self._rows(work, parcel.envelope, False)
        if by is None:
            raise Unclear(parcel.claim(asked), parcel.envelope, False, partial(self._of_helper, asked, rows, parcel))
        return _finished(work, parcel.envelope, parcel.record(asked, rows)) if by == rows else self._here(work)

    def _read(self, work: Work, plain: memoryview) -> Read:
        """The whole message, as sent or joined with the half that was sent before; a first half is kept for later."""
        sent = decode_batch(plain, work.body.media_type, self._decoder.limits)
        if isinstance(sent, Reduced):
            return sent, digest_of(sent)
        key = (work.run, sent.envelope.rollout or "", sent.envelope.shard)
        if isinstance(sent, LaterHalf):
            sent = join(self.halves.find(key), sent, self._decoder.limits)
        elif sent.is_first_half:
            self.halves.keep(key, sent.owned(), sent.nbytes)
            self.kept_here(key)
        return sent, digest_of(sent)

    def _measured(self, message: Message | Reduced, digest: bytes, work: Work) -> Measured:
        """Everything that is stored, told or counted; raises Unclear where the store is to be asked before."""
        envelope, is_first_half = small(message.envelope), message.is_first_half
        rows, of_shard = self._rows(work, envelope, is_first_half), (envelope, digest, dtypes_of(message))
        summary = None if rows is None else self._summary(message, rows, work.known is not None)
        if rows is None or summary is None:
            claim = record_of(work.run, work.received_at, *of_shard)
            raise Unclear(claim, envelope, is_first_half, partial(self._measured, message, digest))
        return _finished(work, envelope, record_of(work.run, work.received_at, *of_shard, summary, rows), is_first_half)

    def _rows(self, work: Work, envelope: Envelope, is_first_half: bool) -> Rows | None:
        """The rows to measure by; None where the store is to be asked, as for a half, of which it is not told."""
        if work.known is not None:
            return Rows.of(work.known.methods)
        return None if is_first_half else self.remembered.rows(key_of(work.run, envelope), envelope.shards)

    def _summary(self, message: Message | Reduced, rows: Rows, are_stored: bool) -> StepSummary | None:
        """What measuring gives; None for a reduced shard of other rows, unless those are what the store answered."""
        if isinstance(message, Reduced):
            try:
                return accepted(message, rows.run)
            except Refusal as refusal:
                if refusal.kind != METHODS_CHANGED or are_stored:
                    raise
                return None
        try:
            with self._metrics.timed("measure"):
                return self._measurer.measure(message.batch, rows.run, origin_of(message))
        finally:
            self.fallbacks.tell()

    async def _brought_here(self, key: Key) -> bool:
        """Whether another worker had the first half, which is kept here now."""
        half = None if self.half_elsewhere is None else await self.half_elsewhere(key)
        return half is not None and self.halves.keep(key, half, half.nbytes)

    async def _asked(self, run: str, unclear: Unclear) -> Known:
        """What the store knows; raises the Refusal that storing the shard would end with."""
        claim = None if unclear.is_first_half else unclear.claim
        known = await self.readers.run(lambda: self.look_up(run, claim))
        if isinstance(known.answer, Refusal):
            raise known.answer
        self.remembered.asked(unclear.claim.key, Rows.of(known.methods))
        return known

    async def _outcome(self, work: Work, measured: Measured, receipt: Receipt | None) -> Outcome:
        """Count a stored shard once; a duplicate answers the figures of the shard that is stored."""
        if receipt is None:
            return Outcome(measured.envelope, measured.told, None, measured.known)
        if receipt.unmerged is not None:
            receipt = await self._merged(work.run, receipt)
        seconds = time.perf_counter() - measured.at
        if not receipt.duplicate:
            # Noted once the answer is on its way, and before anything else is read: a scrape that follows it sees it.
            asyncio.get_running_loop().call_soon(self._noted, measured.record, seconds)
            return Outcome(measured.envelope, measured.told, receipt)
        self._seen(measured.record, seconds)
        self._counters.duplicate(work.run)
        stored = receipt.summary
        return Outcome(measured.envelope, await self._decoder.run(lambda: work.tell(stored)), receipt)

    def _noted(self, record: ShardRecord, seconds: float) -> None:
        """A shard was stored for the first time, which took so long."""
        self._seen(record, seconds)
        self._counters.stored(record.key.run, record.summary)

    def _seen(self, record: ShardRecord, seconds: float) -> None:
        self._metrics.stage("store", seconds)
        self.remembered.stored(record.key, record.shards)

    async def _merged(self, run: str, receipt: Receipt) -> Receipt:
        """The receipt once its step is merged; as it was where that takes too long: the shard is stored anyway."""
        try:
            async with asyncio.timeout(self._settings.store_timeout):
                return await self._merger.finish(run, receipt)
        except TimeoutError:
            return receipt


def _finished(work: Work, envelope: Envelope, record: ShardRecord, is_first_half: bool = False) -> Measured:
    """What is stored and told is made here and not on the writer's thread, which serves every shard.

    Told first: headline figures, which are prepared, are read off all figures where these were made.
    """
    told = work.tell(record.summary)
    if not is_first_half and record.blob is None:
        record = prepared(record)
    return Measured(envelope, is_first_half, record, told, time.perf_counter(), work.known)
