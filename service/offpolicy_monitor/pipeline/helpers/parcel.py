"""What a helper is sent of a shard, and what it sends back: the shard as it is stored, or nothing, which says that the
service is to do it by itself. Pickled, between processes of one service.
"""

import pickle
from collections.abc import Mapping
from typing import NamedTuple

from offpolicy_monitor.pipeline.record import record_of
from offpolicy_monitor.pipeline.remembered import Rows
from offpolicy_monitor.store import ShardRecord, headline_of, prepared_elsewhere
from offpolicy_monitor.summary import stored
from offpolicy_monitor.wire.schema import Envelope


class Asked(NamedTuple):
    """A small frame of a run.

    rows  those of the run as they are stored, pickled: by these bytes a helper knows them again
    """

    run: str
    frame: bytes
    rows: bytes
    received_at: float

    @classmethod
    def of(cls, run: str, frame: memoryview, rows: Rows, received_at: float) -> "Asked":
        """A frame that is to be measured by these rows."""
        return cls(run, bytes(frame), pickle.dumps(rows.stored), received_at)


class Parcel(NamedTuple):
    """A shard as it is stored.

    summary   in its stored form
    headline  its headline figures, of a shard that is its whole step
    seconds   what it took to decode and to measure it
    """

    envelope: Envelope
    digest: bytes
    dtypes: dict[str, str]
    summary: bytes
    headline: Mapping[str, float] | None
    seconds: tuple[float, float]

    @classmethod
    def of(cls, envelope: Envelope, record: ShardRecord, seconds: tuple[float, float]) -> "Parcel":
        """A record that is prepared."""
        assert record.blob is not None
        return cls(envelope, record.digest, record.dtypes, record.blob, headline_of(record), seconds)

    def claim(self, asked: Asked) -> ShardRecord:
        """The record of a shard that is still to be measured."""
        return record_of(asked.run, asked.received_at, self.envelope, self.digest, self.dtypes)

    def record(self, asked: Asked, rows: Rows) -> ShardRecord:
        """The record that the service would have made of it."""
        summary = stored.from_bytes(self.summary)
        record = record_of(asked.run, asked.received_at, self.envelope, self.digest, self.dtypes, summary, rows)
        return prepared_elsewhere(record, self.summary, self.headline)
