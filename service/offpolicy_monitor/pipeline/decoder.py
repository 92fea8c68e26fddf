"""Decoder: bodies become messages in threads of their own, within a budget of memory. Knows the wire, and no HTTP."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields
from typing import Any, TypeVar

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.exposition.process import ProcessMetrics
from offpolicy_monitor.pipeline.admission import ByteBudget
from offpolicy_monitor.pipeline.expansion import JSON, bytes_to_open, bytes_to_parse
from offpolicy_monitor.pipeline.gone import present
from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.pipeline.workers import Worker
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.wire.encoding import decompress
from offpolicy_monitor.wire.limits import Limits

Result = TypeVar("Result")
#: What is read of a body: the message, and what goes with it.
Read = TypeVar("Read", bound=tuple[Any, Any])
DECODERS = 2
#: What a frame may leave beside its body without a share of the budget for decoding: a connection costs as much.
UNCOUNTED_BYTES = 64 * 1024


class Decoder:
    """`budget` is of the bytes that bodies take beside themselves."""

    def __init__(self, settings: Settings, metrics: ProcessMetrics) -> None:
        self.limits = limits_of(settings)
        self.budget = ByteBudget(
            settings.decoding_bytes, settings.admission_timeout, settings.variable("decoding_bytes")
        )
        self._settings, self._metrics = settings, metrics
        self._worker = Worker("decode", DECODERS)
        self.ages, self.close = self._worker.ages, self._worker.close

    async def run(self, job: Callable[[], Result]) -> Result:
        """What a job gives that is as small as decoding is."""
        return await self._worker.run(job)

    @asynccontextmanager
    async def decoded(self, body: Body, read: Callable[[memoryview], Read]) -> AsyncIterator[Read]:
        """What `read` makes of the plain body.

        What that takes of memory is reserved before it is taken: for the plain body, for parsing it, and until the
        block ends for what is left. A plain frame is read where it is, so only what was copied of it is reserved.
        """
        async with AsyncExitStack() as stack:
            plain, spent = body.data, 0.0
            reservation = await stack.enter_async_context(self.budget.reserve(bytes_to_open(body, self.limits)))
            if reservation.size:
                plain, needed, spent = await self.run(lambda: self._opened(body))
                await reservation.grow(needed)
            decoded, copied = await self.run(present(body.gone, lambda: self._read(plain, read, spent)))
            held = copied + (len(plain) if body.encoding != "identity" else 0)
            if reservation.size:
                await reservation.grow(held)
                reservation.shrink(held)
            elif held > UNCOUNTED_BYTES:
                await stack.enter_async_context(self.budget.reserve(held))
            yield decoded

    def _read(self, plain: memoryview, read: Callable[[memoryview], Read], spent: float) -> tuple[Read, int]:
        """What was read, and its bytes beside the body: texts by the million are counted here, in a thread."""
        with self._metrics.timed("decode", spent):
            decoded = read(plain)
            return decoded, decoded[0].copied_bytes

    def _opened(self, body: Body) -> tuple[memoryview, int, float]:
        """The plain body, the bytes that it and parsing it take, and the seconds that this took.

        Refusal 413 for JSON that takes more than there is: of lists and objects some bytes make a hundred.
        """
        began = time.perf_counter()
        plain = present(body.gone, lambda: decompress(body.data, body.encoding, self.limits))()
        own = len(plain) if body.encoding != "identity" else 0
        needed = own + bytes_to_parse(plain, body.media_type, self.limits)
        if needed > self.budget.capacity and body.media_type == JSON:
            variable, taken = self._settings.variable("decoding_bytes"), f"up to {needed} bytes to parse it"
            raise Refusal.over_limit(413, "too-large", "body", taken, self.budget.capacity, variable)
        return plain, needed, time.perf_counter() - began


def limits_of(settings: Settings) -> Limits:
    """The limits of the wire, which have the names of the settings."""
    return Limits(**{field.name: getattr(settings, field.name) for field in fields(Limits)})
