"""What a helper does: it reads, measures and prepares one shard after the other, as the service does by itself.

What it cannot do it answers by nothing, whatever the reason: the service does it again, and tells the client what is
wrong with it. It has no torch, no store, no metrics and no log.
"""

import pickle
import time
from contextlib import suppress
from functools import lru_cache
from typing import Final

from offpolicy_monitor.measure.fused import BESIDE_PASS, Fused
from offpolicy_monitor.pipeline.helpers.line import Line
from offpolicy_monitor.pipeline.helpers.parcel import Asked, Parcel
from offpolicy_monitor.pipeline.record import digest_of, dtypes_of, origin_of, record_of, small
from offpolicy_monitor.pipeline.reduced import accepted
from offpolicy_monitor.pipeline.remembered import Rows
from offpolicy_monitor.store import prepared
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.frame import MEDIA_TYPE
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import LaterHalf, Message, Reduced

#: Sets of rows that are remembered: one of each run that has its own.
ROWS_REMEMBERED = 64
#: What stands in the header of a frame that is no work of helpers: the half of a rollout's shard, whose other half the
#: service keeps; what torch measures.
_NO_WORK: Final = (b"rollout", b"F64", *(name.encode() for name in BESIDE_PASS))


def may_take(header: bytes) -> bool:
    """Whether a helper can measure the frame with this header, as far as that tells."""
    return not any(said in header for said in _NO_WORK)


class Helper:
    """Measures by the pass alone, within these limits."""

    def __init__(self, fused: Fused, limits: Limits) -> None:
        self._fused, self._limits = fused, limits

    def serve(self, service: Line) -> None:
        """Answer what comes, until the service is gone."""
        with suppress(EOFError, OSError):
            while True:
                service.send(self.answer(service.receive()))

    def answer(self, asked: Asked) -> Parcel | None:
        """The shard as it is stored; None where the service is to do it."""
        try:
            return self._parcel(asked)
        except Exception:  # whatever it is, the service comes upon it too, and knows whom to tell
            return None

    def _parcel(self, asked: Asked) -> Parcel | None:
        began = time.perf_counter()
        message = decode_batch(memoryview(asked.frame), MEDIA_TYPE, self._limits)
        if isinstance(message, LaterHalf) or message.is_first_half:
            return None  # the other half is kept by the service
        digest, decoded, rows = digest_of(message), time.perf_counter(), rows_of(asked.rows)
        summary = self._summary(message, rows)
        if summary is None:
            return None
        measured, envelope = time.perf_counter(), small(message.envelope)
        of_shard = asked.run, asked.received_at, envelope, digest, dtypes_of(message)
        return Parcel.of(envelope, prepared(record_of(*of_shard, summary, rows)), (decoded - began, measured - decoded))

    def _summary(self, message: Message | Reduced, rows: Rows) -> StepSummary | None:
        if isinstance(message, Reduced):
            return accepted(message, rows.run)
        if not BESIDE_PASS.isdisjoint(message.batch.columns):
            return None
        return self._fused(message.batch, rows.run, origin_of(message), self._limits.keep_worst)


@lru_cache(ROWS_REMEMBERED)
def rows_of(stored: bytes) -> Rows:
    """The rows that were pickled: the same objects for the same bytes, as what is remembered of rows wants them."""
    return Rows.of(pickle.loads(stored))
