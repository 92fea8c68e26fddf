"""What travels between the stages: a body, what was measured of it, what became of it; and what must be given a device.

Plain values. None of them holds a view of the body but Body and the message that was decoded from it.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from offpolicy_monitor.batch import UNKNOWN_ORIGIN, Origin, RaggedBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.pipeline.gone import Gone
from offpolicy_monitor.store import Known, Receipt, ShardRecord
from offpolicy_monitor.summary.evaluation import Detail, Evaluation
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.schema import Envelope


class Measurer(Protocol):
    """What the pipeline needs of the device.

    `fallbacks`: how often a measurement had to be done again elsewhere. `compilation_failed`: whether a compiled form
    was to be had and is not.
    """

    fallbacks: int
    compilation_failed: bool

    @property
    def device_name(self) -> str: ...
    @property
    def form(self) -> str: ...
    def warm_up(self) -> None: ...
    def close(self) -> None: ...
    def measure(
        self, batch: RaggedBatch, rows: Sequence[MethodRow], origin: Origin = UNKNOWN_ORIGIN
    ) -> StepSummary: ...
    def evaluation(
        self,
        batch: RaggedBatch,
        rows: Sequence[MethodRow] | None = None,
        detail: Detail = "none",
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> Generator[None, None, Evaluation]: ...


def has_pass(measurer: Measurer) -> bool:
    """Whether it measures by the compiled pass, be it small batches alone."""
    return "fused" in measurer.form


@dataclass(frozen=True)
class Body:
    """A request body, complete: bytes as received, media type, content encoding.

    `gone` is done once nobody waits for the answer any more; None where that cannot be known.
    """

    data: memoryview
    media_type: str
    encoding: str
    gone: Gone | None = None


@dataclass(frozen=True)
class Measured:
    """Everything that is stored or told of a message; its tokens and sequence ids are not kept.

    `told` is empty where the record is one that is stored already: what is stored is told of once it was looked up.
    `at`: when it was ready, by time.perf_counter. `known`: what the store answered before, None where it was not asked.
    """

    envelope: Envelope
    is_first_half: bool
    record: ShardRecord
    told: bytes
    at: float
    known: Known | None


@dataclass(frozen=True)
class Outcome:
    """What became of a shard; `receipt` is None for the first half of a rollout, which is kept and not stored.

    `told` is what was asked to be told of its summary. Of such a half's run, `known` has what the rules say.
    """

    envelope: Envelope
    told: bytes
    receipt: Receipt | None
    known: Known | None = None


#: What a client is told of the summary of its shard; made where the shard is measured.
Tell = Callable[[StepSummary], bytes]
