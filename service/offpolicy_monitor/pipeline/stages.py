"""Pipeline: the stages that bodies pass, each bounded and with its own threads, and what becomes of a body in them.

It knows the wire, the measurer and the store through their interfaces, and nothing of HTTP. Shards have their own way
(pipeline.shards). An evaluation is done in slices, each of which waits for its turn beside the large shards, and is
given up at the end.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final, TypeVar

from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.methods import PRESETS, MethodRow, parse_rows
from offpolicy_monitor.pipeline.admission import ByteBudget
from offpolicy_monitor.pipeline.buffers import BufferPool
from offpolicy_monitor.pipeline.decoder import Decoder
from offpolicy_monitor.pipeline.device import Device
from offpolicy_monitor.pipeline.expansion import bytes_to_evaluate
from offpolicy_monitor.pipeline.gone import Gone
from offpolicy_monitor.pipeline.kept import Keep, batch_of, kept
from offpolicy_monitor.pipeline.lanes import BodyBudget
from offpolicy_monitor.pipeline.merger import Merger
from offpolicy_monitor.pipeline.rates import RunRates
from offpolicy_monitor.pipeline.record import origin_of
from offpolicy_monitor.pipeline.shards import Lane, LookUp, Shards
from offpolicy_monitor.pipeline.turns import Turns
from offpolicy_monitor.pipeline.values import Body, Measurer
from offpolicy_monitor.pipeline.writer import Writer
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.summary.evaluation import Detail, Evaluation
from offpolicy_monitor.summary.tables.worst import Sequences
from offpolicy_monitor.wire.decode import decode_evaluation
from offpolicy_monitor.wire.message import Message

Result = TypeVar("Result")
#: Who shares the device: large shards, evaluations; and what happens once teaches nothing about those.
LANES: Final = ("large", "evaluate", "warm-up")
#: Small shards have threads of their own, so many at most, or as many as there may be helpers: more would wait for the
#: interpreter's lock.
SMALL_AT_ONCE: Final = 2
#: What a slice of an evaluation is taken for; slices take about equally long.
SLICE_BYTES = 1024 * 1024


class Pipeline:
    """Made inside a running event loop; `close` finishes what was begun."""

    def __init__(
        self,
        settings: Settings,
        writer: Writer,
        merger: Merger,
        measurer: Measurer,
        metrics: ProcessMetrics,
        counters: RunCounters,
        look_up: LookUp,
    ) -> None:
        self.settings = settings
        self.writer, self.merger = writer, merger
        self.measurer, self.metrics, self.counters = measurer, metrics, counters
        self.budget = BodyBudget(
            settings.inflight_bytes, settings.admission_timeout, settings.variable("inflight_bytes")
        )
        self.evaluating = ByteBudget(
            settings.evaluate_bytes, settings.admission_timeout, settings.variable("evaluate_bytes")
        )
        self.rates = RunRates(settings)
        self._stopping = False
        self.buffers = BufferPool(settings.inflight_bytes // 4)
        self.decoder = Decoder(settings, metrics)
        self.decoding = self.decoder.budget
        longest = settings.max_queue_wait, settings.variable("max_queue_wait")
        at_once = min(settings.measure_threads, max(SMALL_AT_ONCE, settings.measure_processes))
        self.device = Device(Turns(LANES, *longest))
        self.small = Device(Turns(("small",), *longest, at_once=at_once), at_once)
        devices: dict[Lane, Device] = {"small": self.small, "large": self.device}
        self.shards = Shards(settings, self.decoder, devices, measurer, writer, merger, look_up, metrics, counters)
        self.ingest = self.shards.ingest

    async def evaluate(self, body: Body, detail: Detail, held: AsyncExitStack) -> Evaluation:
        """Measure a body without storing it, with the rows it asks for.

        The memory of the answer stays reserved until `held` is closed. Raises Unavailable once `stop` was called.
        """

        def read(plain: memoryview) -> tuple[Message, Sequence[MethodRow]]:
            message = decode_evaluation(plain, body.media_type, self.decoder.limits)
            rows = PRESETS if message.methods is None else parse_rows(message.methods)
            self._check_work(len(rows), message.batch.tokens)
            return message, rows

        async with self.decoder.decoded(body, read) as (message, rows):
            size = bytes_to_evaluate(message.batch, rows, detail)
            if size > self.evaluating.capacity:
                raise self._too_large("evaluate_bytes", f"an answer for which {size} bytes of memory are needed")
            await held.enter_async_context(self.evaluating.reserve(size))
            return await self._in_slices(
                self.measurer.evaluation(message.batch, rows, detail, origin_of(message)), body.gone
            )

    async def keep(self, sequences: Sequences, rows: Sequence[MethodRow]) -> list[Keep]:
        """What rows would keep of sequences whose raw tokens were stored. Raises as `evaluate` does."""
        batch = await self.decoder.run(lambda: batch_of(sequences))
        return await self._in_slices(kept(self.measurer, sequences, rows, batch), None)

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

        def advance() -> None:
            nonlocal seconds
            began = time.perf_counter()
            try:
                next(work)
            except StopIteration as end:
                result.append(end.value)
            finally:
                seconds += time.perf_counter() - began

        try:
            while not result:
                if self._stopping:
                    raise Unavailable(503, "stopping", "the service is being stopped; send it again later")
                await self.device.run("evaluate", SLICE_BYTES, advance, gone, begun=begun)
                begun = True
        finally:
            # A slice that still runs, because nobody could wait for it, cannot be closed: it ends with the last of it.
            with suppress(ValueError):
                work.close()
            self.shards.fallbacks.tell()
            self.metrics.stage("measure", seconds)
        return result[0]

    def forget(self, run: str) -> None:
        """A run is deleted."""
        self.shards.forget(run)
        self.counters.forget(run)

    async def warm_up(self) -> None:
        """Measure once, so that the first shard does not pay for what happens only once."""
        try:
            await self.device.run("warm-up", 0, self.measurer.warm_up)
        finally:
            self.shards.fallbacks.tell()

    def oldest_jobs(self) -> dict[str, float]:
        """Seconds since the oldest unfinished job of each stage came into it; may be asked from any thread."""
        ages = {"decode": self.decoder.ages, "look-up": self.shards.readers.ages}
        ages |= {"merge": self.merger.ages, "store": self.writer.ages}
        found = {stage: of_stage.oldest() for stage, of_stage in ages.items()}
        return found | {"measure": max(self.device.ages.oldest(), self.small.ages.oldest())}

    def close(self) -> None:
        """Finish every job that was begun; called after the last request is answered."""
        for stage in (self.shards.readers, self.decoder, self.small, self.device, self.merger):
            stage.close()
        self.shards.helpers.close()
        self.writer.close()
