"""The core on a GPU, timed by CUDA events against a copy within the device's memory of the same 13 bytes per token; and
whole batches out of the host's memory, against the pass that measures them on the CPU.

For the first the batch lies on the device before the clock starts. A copy reads and writes, the core only reads: both
count the bytes that they move. The L2 cache is overwritten before each measurement.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable

import torch
from offpolicy_monitor.batch import Origin
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.measurer import GPU_BLOCK_TOKENS, LEAST_GPU_TOKENS, Measurer
from offpolicy_monitor.measure.summarise import summarise
from offpolicy_monitor.measure.tables import OF_DATA, OF_INGESTED
from offpolicy_monitor.methods import PRESETS

from tests.benchmarks.batches import BYTES_PER_TOKEN, Synthetic
from tests.benchmarks.compute import measurer_of
from tests.benchmarks.rows import Row, at_least, at_most
from tests.benchmarks.scale import MEBIBYTE, MILLION, Scale
from tests.benchmarks.timing import NANOSECONDS, Progress, by_turns, seconds_by_turns
from tests.measure.test_on_a_gpu import batch, measured

L2_BYTES = 256 * MEBIBYTE  # more than any GPU's L2 has
#: Below this a batch is bound by launches.
GOAL_TOKENS = 16 * MILLION
MOST_OPERATIONS = 300
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
WHAT = "core on the GPU, bytes read per second over a device-to-device copy's"
#: Smaller batches are left to the pass, and here measured by both all the same.
SIZES = (2_000, 131_072, LEAST_GPU_TOKENS, 4 * MILLION, 16 * MILLION)


def gpu_rows(scale: Scale, progress: Progress) -> list[Row]:
    """What a batch starts on a device, which needs none; then the rows by size, or one that says there is no GPU."""
    started = [operations()]
    if not torch.cuda.is_available():
        return [*started, Row(WHAT, None, "GB/s", note="no GPU here")]
    gpu = Measurer("cuda")
    gpu.warm_up()
    rows = [size_row(tokens, gpu, scale, progress) for tokens in scale.gpu_tokens]
    pass_of_cpu = measurer_of(scale.compiled)
    return [*started, *rows, *(host_row(tokens, gpu, pass_of_cpu, scale, progress) for tokens in SIZES)]


def operations() -> Row:
    """Counted under FakeTensorMode, which would raise at a wait for the host, in a process that sees no GPU: what is
    kept of a device would be fake in this one."""
    script = [sys.executable, "-c", "from tests.benchmarks.gpu import started; print(started())"]
    number = int(subprocess.run(script, env=os.environ | NO_GPU, capture_output=True, check=True).stdout)
    what, note = "operations that a batch starts on CUDA, without one wait for the host", "the ratio is their number"
    return Row(what, number, "operations", number, at_most(MOST_OPERATIONS), note)


def started() -> int:
    """Of a batch of which others have brought the constants to the device."""
    measured(batch(MILLION), PRESETS, GPU_BLOCK_TOKENS)
    return measured(batch(MILLION), PRESETS, GPU_BLOCK_TOKENS)[1].number


def size_row(tokens: int, gpu: Measurer, scale: Scale, progress: Progress) -> Row:
    """Bytes per second at one size."""
    loaded = DeviceBatch.load(Synthetic(tokens).batch(), gpu.device)
    source = torch.zeros(tokens * BYTES_PER_TOKEN, dtype=torch.uint8, device=gpu.device)
    target, flush = torch.empty_like(source), torch.empty(L2_BYTES, dtype=torch.uint8, device=gpu.device)
    makers = (*OF_DATA, *OF_INGESTED)
    candidates = {
        "copy": event_seconds(lambda: target.copy_(source), flush),
        "core": event_seconds(lambda: summarise(loaded, PRESETS, GPU_BLOCK_TOKENS, Origin(), makers), flush),
    }
    seconds = by_turns(candidates, scale.repeats, progress)
    read, copied = source.nbytes / seconds["core"], 2 * source.nbytes / seconds["copy"]
    picoseconds = seconds["core"] / tokens * 1e12
    note = f"{picoseconds:,.0f} ps per token on {gpu.device_name}; the copy: {copied / 1e9:,.0f} GB/s"
    goal = at_least(0.25) if tokens >= GOAL_TOKENS else None
    return Row(f"{WHAT}, {tokens // MILLION} M tokens", read / 1e9, "GB/s", read / copied, goal, note)


def host_row(tokens: int, gpu: Measurer, pass_of_cpu: Measurer, scale: Scale, progress: Progress) -> Row:
    """A batch that comes from a trainer, measured on the GPU and by the pass on one thread."""
    source = Synthetic(tokens).batch()
    works = {"gpu": lambda: gpu.measure(source, PRESETS), "pass": lambda: pass_of_cpu.measure(source, PRESETS)}
    ns = {
        name: seconds / tokens * NANOSECONDS
        for name, seconds in seconds_by_turns(works, scale.repeats, progress).items()
    }
    what = f"{tokens:,} tokens of the host measured on the GPU: times as fast as by {pass_of_cpu.form} on a CPU's core"
    return Row(
        what,
        ns["gpu"],
        "ns per token",
        ns["pass"] / ns["gpu"],
        note=f"there {ns['pass']:.3g} ns per token",
        better="more",
    )


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
    return torch.cuda.Event(enable_timing=True)
