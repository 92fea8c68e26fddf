"""The core on a GPU, timed by CUDA events against a copy within the device's memory of the same 13 bytes per token.

The batch lies on the device before the clock starts. A copy reads and writes, the core only reads: both count the bytes
that they move. The L2 cache is overwritten before each measurement.
"""

import statistics
from collections.abc import Callable

import torch
from offpolicy_monitor.batch import Origin
from offpolicy_monitor.core.gap import Derive
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.measurer import GPU_BLOCK_TOKENS, Measurer
from offpolicy_monitor.measure.summarise import summarise
from offpolicy_monitor.measure.tables import OF_DATA, OF_INGESTED
from offpolicy_monitor.methods import PRESETS

from tests.benchmarks.batches import BYTES_PER_TOKEN, Synthetic
from tests.benchmarks.rows import Row, at_least, at_most
from tests.benchmarks.scale import MEBIBYTE, MILLION, Scale
from tests.benchmarks.timing import Progress, by_turns
from tests.fixtures.kernels import compiled_columns
from tests.measure.test_on_a_gpu import batch, measured

L2_BYTES = 256 * MEBIBYTE  # more than any GPU's L2 has
#: Below this a batch is bound by launches.
GOAL_TOKENS = 16 * MILLION
MOST_OPERATIONS = 300
WHAT = "core on the GPU, bytes read per second over a device-to-device copy's"


def gpu_rows(scale: Scale, progress: Progress) -> list[Row]:
    """What a batch starts on a device, which needs none; then one row a size, or one that says there is no GPU."""
    started = [operations()]
    if not torch.cuda.is_available():
        return [*started, Row(WHAT, None, "GB/s", note="no GPU here")]
    measurer = Measurer("cuda")
    measurer.warm_up()
    derive = compiled_columns(measurer.device)
    return [*started, *(size_row(tokens, measurer, derive, scale, progress) for tokens in scale.gpu_tokens)]


def operations() -> Row:
    """Counted under FakeTensorMode, which would raise at a wait for the host."""
    _, found = measured(batch(MILLION), PRESETS, GPU_BLOCK_TOKENS)
    what, note = "operations that a batch starts on CUDA, without one wait for the host", "the ratio is their number"
    return Row(what, found.number, "operations", found.number, at_most(MOST_OPERATIONS), note)


def size_row(tokens: int, measurer: Measurer, derive: Derive, scale: Scale, progress: Progress) -> Row:
    """Bytes a second at one size."""
    loaded = DeviceBatch.load(Synthetic(tokens).batch(), measurer.device, derive)
    source = torch.zeros(tokens * BYTES_PER_TOKEN, dtype=torch.uint8, device=measurer.device)
    target, flush = torch.empty_like(source), torch.empty(L2_BYTES, dtype=torch.uint8, device=measurer.device)
    makers = (*OF_DATA, *OF_INGESTED)
    candidates = {
        "copy": event_seconds(lambda: target.copy_(source), flush),
        "core": event_seconds(lambda: summarise(loaded, PRESETS, GPU_BLOCK_TOKENS, Origin(), makers), flush),
    }
    seconds = by_turns(candidates, scale.repeats, progress)
    read, copied = source.nbytes / seconds["core"], 2 * source.nbytes / seconds["copy"]
    picoseconds = seconds["core"] / tokens * 1e12
    note = f"{picoseconds:,.0f} ps a token on {measurer.device_name}; the copy: {copied / 1e9:,.0f} GB/s"
    goal = at_least(0.25) if tokens >= GOAL_TOKENS else None
    return Row(f"{WHAT}, {tokens // MILLION} M tokens", read / 1e9, "GB/s", read / copied, goal, note)


def event_seconds(work: Callable[[], object], flush: torch.Tensor) -> Callable[[], float]:
    """Seconds between two events around the work, the median of three."""

    def once() -> float:
        flush.zero_()
        began, ended = event(), event()
        began.record()
        work()
        ended.record()
        torch.cuda.synchronize()
        return began.elapsed_time(ended) / 1e3

    return lambda: statistics.median(once() for _ in range(3))


def event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
