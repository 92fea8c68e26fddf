"""Pipeline: decode -> (join) -> look up -> measure -> store for one body at a time, many bodies at once.

Every stage is bounded and has its own threads; what happens between them is plain values. It knows the wire, the
measurer and the store through their interfaces, and nothing of HTTP. Results never hold views of the body.
A shard that its trainer reduced is not measured again, nor is one that is stored already: a client that gave up on an
answer sends it anew. What a client no longer waits for is dropped until it is being measured; then it is stored too.
An evaluation is done in slices, each of which waits for its turn beside the shards, and is given up at the end.

Which method rows run is asked of the store for each shard, just before it is measured and together with whether the
shard is known: one read (under 1 ms, against tens of measuring) in place of a cache that every process would have to
keep right. A batch posted after a change was answered, by whichever process, is therefore measured with the new rows.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import fields, replace
from typing import TypeVar

from offpolicy_monitor.batch import Origin
from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.histograms import exposed
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.methods import PRESETS, MethodRow, parse_rows, restored
from offpolicy_monitor.pipeline.admission import ByteBudget
from offpolicy_monitor.pipeline.buffers import BufferPool
from offpolicy_monitor.pipeline.expansion import JSON, bytes_to_evaluate, bytes_to_open, bytes_to_parse
from offpolicy_monitor.pipeline.lanes import BodyBudget
from offpolicy_monitor.pipeline.merger import Merger
from offpolicy_monitor.pipeline.readers import Readers
from offpolicy_monitor.pipeline.reduced import accepted
from offpolicy_monitor.pipeline.rollouts import RolloutCache
from offpolicy_monitor.pipeline.turns import Gone, Turns, present
from offpolicy_monitor.pipeline.values import Body, Measured, Measurer, Outcome
from offpolicy_monitor.pipeline.workers import Worker
from offpolicy_monitor.pipeline.writer import Writer
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Known, Receipt, ShardKey, ShardRecord, prepared
from offpolicy_monitor.summary.evaluation import Detail, Evaluation
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.decode import decode_batch, decode_evaluation
from offpolicy_monitor.wire.digest import content_digest, reduced_digest
from offpolicy_monitor.wire.encoding import decompress
from offpolicy_monitor.wire.halves import join
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import LaterHalf, Message, Reduced

Result = TypeVar("Result")
#: What is read of a body: the message, and what goes with it.
Read = TypeVar("Read", tuple[Message | Reduced, bytes], tuple[Message, Sequence[MethodRow]])
#: What the store knows of a run, and of a shard of it where one is given: `Store.known`.
LookUp = Callable[[str, ShardRecord | None], Known]
DECODERS = 2
#: Threads that ask the store. They do nothing else, so that a store that hangs keeps no other work from being done.
READERS = 4
#: Who shares the device: shards up to SMALL_BYTES, larger ones, and evaluations.
LANES = ("small", "large", "evaluate")
SMALL_BYTES = 512 * 1024
#: Longest time of a look-up, its wait for a thread included.
LOOK_UP_SECONDS = 4.0
#: What a slice of an evaluation is taken for; slices take about equally long.
SLICE_BYTES = 1024 * 1024
#: What a frame may leave beside its body without a place in the budget for decoding: a connection costs as much.
UNCOUNTED_BYTES = 64 * 1024


class Pipeline:
    """Made inside a running event loop; `close` finishes what was begun."""

    def __init__(
        self,
        settings: Settings,
        writer: Writer,
        merging: Merger,
        measurer: Measurer,
        metrics: ProcessMetrics,
        counters: RunCounters,
        look_up: LookUp,
    ) -> None:
        self.settings = settings
        self.look_up = look_up
        self.limits = limits_of(settings)
        self.writer, self.merging = writer, merging
        self.measurer, self.metrics, self.counters = measurer, metrics, counters
        self.budget = BodyBudget(
            settings.inflight_bytes, settings.admission_timeout, settings.variable("inflight_bytes")
        )
        self.decoding = ByteBudget(
            settings.decoding_bytes, settings.admission_timeout, settings.variable("decoding_bytes")
        )
        self.evaluating = ByteBudget(
            settings.evaluate_bytes, settings.admission_timeout, settings.variable("evaluate_bytes")
        )
        self._stopping = False
        self.buffers = BufferPool(settings.inflight_bytes // 4)
        self.halves: RolloutCache[Message] = RolloutCache(settings.rollout_bytes, settings.rollout_ttl)
        self._decode = Worker("decode", DECODERS)
        self._read = Readers("look-up", READERS, LOOK_UP_SECONDS, whole=True)
        self._device = Worker("measure")
        self._turns = Turns(LANES, settings.max_queue_wait, settings.variable("max_queue_wait"))

    async def ingest(self, run: str, body: Body) -> Outcome:
        """Decode, measure and store one shard of `run`; raises Refusal or Unavailable, and has then stored nothing."""
        measured = await self._read_and_measured(run, body)
        if measured.is_first_half:
            return Outcome(
                measured.envelope, measured.figures, None, await self._read.run(lambda: self.look_up(run, None))
            )
        began = time.perf_counter()
        receipt = await self._finished(run, await self.writer.ingest(measured.record))
        self.metrics.stage("store", time.perf_counter() - began)
        return await self._counted(measured, receipt)

    async def _read_and_measured(self, run: str, body: Body) -> Measured:
        """What was measured of the body. Its message and what is reserved for it end here, together."""
        received_at = time.time()
        async with self._decoded(body, lambda plain: self._message(run, plain, body.media_type)) as (message, digest):
            return await self._measure(message, _claim(run, message, digest, received_at), body.gone)

    async def _finished(self, run: str, receipt: Receipt) -> Receipt:
        """The receipt once its step is merged; as it was where that takes too long: the shard is stored anyway."""
        try:
            async with asyncio.timeout(self.settings.store_timeout):
                return await self.merging.finish(run, receipt)
        except TimeoutError:
            return receipt

    async def evaluate(self, body: Body, detail: Detail, held: AsyncExitStack) -> Evaluation:
        """Measure a body without storing it, with the rows it asks for.

        The memory of the answer stays reserved until `held` is closed. Raises Unavailable once `stop` was called.
        """

        def read(plain: memoryview) -> tuple[Message, Sequence[MethodRow]]:
            message = decode_evaluation(plain, body.media_type, self.limits)
            rows = PRESETS if message.methods is None else parse_rows(message.methods)
            self._check_work(len(rows), message.batch.tokens)
            return message, rows

        async with self._decoded(body, read) as (message, rows):
            size = bytes_to_evaluate(message.batch, rows, detail)
            if size > self.evaluating.capacity:
                raise self._too_large("evaluate_bytes", f"an answer for which {size} bytes of memory are needed")
            await held.enter_async_context(self.evaluating.reserve(size))
            return await self._in_slices(
                self.measurer.evaluation(message.batch, rows, detail, _origin(message)), body.gone
            )

    def stop(self) -> None:
        """Give up evaluations, which nothing depends on; what is being stored is finished."""
        self._stopping = True

    def _check_work(self, rows: int, tokens: int) -> None:
        if rows * tokens > self.settings.max_evaluate_row_tokens:
            raise self._too_large("max_evaluate_row_tokens", f"{rows} rows on {tokens} tokens")

    def _too_large(self, setting: str, got: str) -> Refusal:
        limit, variable = getattr(self.settings, setting), self.settings.variable(setting)
        return Refusal.over_limit(413, "too-large", "methods", got, limit, variable)

    async def _in_slices(self, work: Generator[None, None, Result], gone: Gone | None) -> Result:
        """What the work comes to: each of its slices waits for its turn, so that shards are measured between them."""
        seconds, begun, result = 0.0, False, list[Result]()
        try:
            while not result:
                async with self._turns.turn("evaluate", SLICE_BYTES, gone, begun) as turn:
                    if self._stopping:
                        raise Unavailable(503, "stopping", "the service is being stopped; send it again later")
                    result = await self._device.run(turn.timed(lambda: _advanced(work)))
                seconds, begun = seconds + (turn.seconds or 0.0), True
        finally:
            # A slice that still runs, because nobody could wait for it, cannot be closed: it ends with the last of it.
            with suppress(ValueError):
                work.close()
            self.metrics.stage("measure", seconds)
        return result[0]

    async def warm_up(self) -> None:
        """Measure once, so that the first shard does not pay for what happens only once."""
        await self._device.run(self.measurer.warm_up)

    def oldest_jobs(self) -> dict[str, float]:
        """Seconds since the oldest unfinished job of each stage came into it; may be asked from any thread."""
        ages = {"decode": self._decode.ages, "look-up": self._read.ages, "measure": self._device.ages}
        ages |= {"merge": self.merging.ages, "store": self.writer.ages}
        return {stage: of_stage.oldest() for stage, of_stage in ages.items()}

    def close(self) -> None:
        """Finish every job that was begun; called after the last request is answered."""
        for stage in (self._read, self._decode, self._device, self.merging):
            stage.close()
        self.writer.close()

    @asynccontextmanager
    async def _decoded(self, body: Body, read: Callable[[memoryview], Read]) -> AsyncIterator[Read]:
        """What `read` makes of the plain body.

        What that takes of memory is reserved before it is taken: for the plain body, for parsing it, and until the
        block ends for what is left. A plain frame is read where it is, so only what was copied of it is reserved.
        """
        async with AsyncExitStack() as stack:
            plain, spent = body.data, 0.0
            reservation = await stack.enter_async_context(self.decoding.reserve(bytes_to_open(body, self.limits)))
            if reservation.size:
                plain, needed, spent = await self._decode.run(lambda: self._opened(body))
                await reservation.grow(needed)
            reading = present(body.gone, lambda: _with_size(read(plain)))
            decoded, copied = await self._timed("decode", self._decode, reading, spent)
            held = copied + (len(plain) if body.encoding != "identity" else 0)
            if reservation.size:
                await reservation.grow(held)
                reservation.shrink(held)
            elif held > UNCOUNTED_BYTES:
                await stack.enter_async_context(self.decoding.reserve(held))
            yield decoded

    def _opened(self, body: Body) -> tuple[memoryview, int, float]:
        """The plain body, the bytes that it and parsing it take, and the seconds that this took.

        Refusal 413 for JSON that takes more than there is: of lists and objects some bytes make a hundred.
        """
        began = time.perf_counter()
        plain = present(body.gone, lambda: decompress(body.data, body.encoding, self.limits))()
        own = len(plain) if body.encoding != "identity" else 0
        needed = own + bytes_to_parse(plain, body.media_type)
        if needed > self.decoding.capacity and body.media_type == JSON:
            variable, taken = self.settings.variable("decoding_bytes"), f"up to {needed} bytes to parse it"
            raise Refusal.over_limit(413, "too-large", "body", taken, self.decoding.capacity, variable)
        return plain, needed, time.perf_counter() - began

    def _message(self, run: str, plain: memoryview, media_type: str) -> tuple[Message | Reduced, bytes]:
        """The whole message, as sent or joined with the half that was sent before; a first half is kept for later."""
        sent = decode_batch(plain, media_type, self.limits)
        if isinstance(sent, Reduced):
            return sent, reduced_digest(sent)
        key = (run, sent.envelope.rollout or "", sent.envelope.shard)
        if isinstance(sent, LaterHalf):
            sent = join(self.halves.find(key), sent, self.limits)
        elif sent.is_first_half:
            self.halves.keep(key, sent.owned(), sent.nbytes)
        return sent, content_digest(sent)

    async def _measure(self, message: Message | Reduced, claim: ShardRecord, gone: Gone | None) -> Measured:
        """Everything that is answered, stored or counted of a shard; of one that is stored already, what is stored.

        Raises the Refusal that storing it would end with, where that is known already.
        """
        known = await self._read.run(lambda: self.look_up(claim.key.run, None if message.is_first_half else claim))
        if isinstance(known.answer, Refusal):
            raise known.answer
        if known.answer is not None:
            stored = known.answer
            return await self._decode.run(lambda: _measured(message, claim, stored))
        rows = PRESETS if known.methods is None else restored(known.methods)
        if isinstance(message, Reduced):
            return await self._decode.run(lambda: _measured(message, claim, accepted(message, rows)))
        lane = "small" if message.nbytes <= SMALL_BYTES else "large"
        return await self._on_device(lane, message.nbytes, gone, lambda: self._measured(message, claim, rows))

    async def _on_device(self, lane: str, size: int, gone: Gone | None, job: Callable[[], Result]) -> Result:
        """Measure in turn; once it has begun it is finished and stored, whoever is gone by then."""
        async with self._turns.turn(lane, size, gone) as turn:
            return await self._timed("measure", self._device, turn.timed(job))

    def _measured(self, message: Message, claim: ShardRecord, rows: Sequence[MethodRow]) -> Measured:
        before = self.measurer.fallbacks
        summary = self.measurer.measure(message.batch, rows, _origin(message))
        if self.measurer.fallbacks != before:
            self.metrics.fell_back(self.measurer.fallbacks - before, self.measurer.device_name)
        return _measured(message, claim, summary)

    async def _counted(self, measured: Measured, receipt: Receipt) -> Outcome:
        """Count a stored shard once; a duplicate answers the figures of the shard that is stored."""
        run = measured.record.key.run
        if not receipt.duplicate:
            self.counters.stored(run, measured.figures, measured.histograms)
            return Outcome(measured.envelope, measured.figures, receipt)
        self.counters.duplicate(run)
        figures = await self._decode.run(receipt.summary.figures)
        return Outcome(measured.envelope, figures, receipt)

    async def _timed(self, stage: str, worker: Worker, job: Callable[[], Result], spent: float = 0.0) -> Result:
        """Run a job in its stage; what is counted is the work, `spent` seconds before it included, and no wait."""

        def timed() -> Result:
            began = time.perf_counter()
            try:
                return job()
            finally:
                self.metrics.stage(stage, spent + time.perf_counter() - began)

        return await worker.run(timed)


def _advanced(work: Generator[None, None, Result]) -> list[Result]:
    """Do the next slice: nothing, or what the work comes to where that was the last one."""
    try:
        next(work)
    except StopIteration as end:
        return [end.value]
    return []


def _with_size(read: Read) -> tuple[Read, int]:
    """What was read, and its bytes beside the body: texts by the million are counted here, in a thread."""
    return read, read[0].copied_bytes


def limits_of(settings: Settings) -> Limits:
    """The limits of the wire, which have the names of the settings."""
    return Limits(**{field.name: getattr(settings, field.name) for field in fields(Limits)})


def _origin(message: Message) -> Origin:
    envelope = message.envelope
    return Origin(envelope.policy_version, envelope.shard, dict(envelope.labels))


def _claim(run: str, message: Message | Reduced, digest: bytes, received_at: float) -> ShardRecord:
    """The record of a shard that is still to be measured: its summary is empty."""
    envelope = message.envelope
    return ShardRecord(
        key=ShardKey(run, envelope.attempt, envelope.step, envelope.minibatch, envelope.shard),
        shards=envelope.shards,
        digest=digest,
        summary=StepSummary.empty(),
        minibatches=envelope.minibatches,
        policy_version=envelope.policy_version,
        labels=dict(envelope.labels),
        dtypes={} if isinstance(message, Reduced) else dict(message.batch.dtypes),
        received_at=received_at,
    )


def _measured(message: Message | Reduced, claim: ShardRecord, summary: StepSummary) -> Measured:
    envelope = message.envelope.model_copy(update={"sequence_ids": None})
    record = replace(claim, summary=summary)
    if not message.is_first_half:
        # Here and not on the writer's thread, which serves every shard.
        record = prepared(record)
    return Measured(envelope, message.is_first_half, record, summary.figures(), exposed(summary))
