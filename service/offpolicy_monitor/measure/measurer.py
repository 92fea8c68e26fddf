"""Measurer: owns the device, and measures batches on it whatever happens to the device.

Where memory runs out it goes on in smaller blocks, and where the device fails it goes on, for good, on the CPU; the
figures are the same, and each such step back is counted.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import torch

from offpolicy_monitor.batch import UNKNOWN_ORIGIN, Origin, RaggedBatch
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.compilation import Compilation
from offpolicy_monitor.measure.evaluate import evaluation
from offpolicy_monitor.measure.fused import IN_PASS, Fused, fused_pass
from offpolicy_monitor.measure.summarise import summarise, with_tables
from offpolicy_monitor.measure.tables import MAKERS, OF_DATA, Maker
from offpolicy_monitor.methods import PRESETS, MethodRow
from offpolicy_monitor.slices import Slices, finished, in_one, one_at_a_time
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.evaluation import Detail, Evaluation
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.vocabulary import LOGPROBS

Result = TypeVar("Result")

#: Tokens per block: fewer fit a CPU's caches better, and take less of a GPU's memory (900 bytes per token of a block,
#: 1,740 where some log-probs are not finite); more share the cost of some 300 operations per block.
CPU_BLOCK_TOKENS: Final = 1 << 17
GPU_BLOCK_TOKENS: Final = 1 << 20
SMALLEST_BLOCK_TOKENS: Final = 1 << 14
#: A GPU takes as long to start a batch's operations as the pass for all of one of fewer tokens.
LEAST_GPU_TOKENS: Final = 1 << 19
#: Where the pass runs.
CPU: Final = torch.device("cpu")


class Measurer:
    """Turns batches into summaries on one device, for any thread: by torch one at a time, by the pass several.

    `threads`: torch's intra-op threads of the whole process; None leaves them as they are, as a guest must.
    `pass_threads`: those that the fused pass shares a batch among.
    """

    def __init__(
        self, device: str = "auto", threads: int | None = 1, keep_worst: int = 0, pass_threads: int = 1
    ) -> None:
        self.keep_worst = keep_worst
        self._pass_threads = pass_threads
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = choose_device(device)
        self._by_torch_alone = threading.Lock()
        self.fallbacks = 0
        self.compilation_failed = False
        self._fused: Fused | None = None
        self._compiling: Compilation | None = None
        self.block_tokens = CPU_BLOCK_TOKENS if self.device.type == "cpu" else GPU_BLOCK_TOKENS

    @property
    def device_name(self) -> str:
        """The device as a person would name it: `cpu`, or the GPU's model."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type

    def warm_up(self) -> None:
        """Measure a small batch, on a GPU too, so that the first real one pays for no initialisation."""
        values = np.linspace(-2.0, -0.1, 64, dtype=np.float32)
        columns = {name: values - np.float32(0.01 * index) for index, name in enumerate(LOGPROBS)}
        lengths = np.full(4, 16, np.int64)
        advantages = np.array([-1.0, 0.0, 1.0, 2.0], np.float32)
        batch = RaggedBatch.from_positions(lengths, columns, {"advantages": advantages})
        self.measure(batch, PRESETS)
        if self.device.type != "cpu":  # where the pass measures small batches, that was not asked
            finished(self._with_fallback(in_one(partial(self._by_torch, batch, PRESETS))))

    @property
    def form(self) -> str:
        """What measures batches: `torch`, or the pass, `fused`; on a GPU the pass the small ones, `torch, fused`."""
        if self._fused is None:
            return "torch"
        return "fused" if self.device.type == "cpu" else "torch, fused"

    def use(self, fused: Fused) -> None:
        """Measure by the pass from now on, on a GPU batches of fewer than LEAST_GPU_TOKENS."""
        self._fused = fused

    def compile_in_background(
        self, done: Callable[[Exception | None], None], progress: Callable[[int], None] = lambda functions: None
    ) -> None:
        """Get the fused pass, from disk or from a process that compiles it, and use it from then on.

        `progress` is called where there is none on disk, with the number of functions that are compiled, 0 at first.
        `done` is called once, on another thread: with None, or with the reason why torch goes on serving.
        """

        def ready(outcome: Fused | Exception) -> None:
            self.compilation_failed = isinstance(outcome, Exception)
            if not isinstance(outcome, Exception):
                self.use(outcome)
            done(outcome if isinstance(outcome, Exception) else None)

        self._compiling = Compilation(fused_pass(self._pass_threads), ready, progress)

    def close(self) -> None:
        """End what was begun in the background."""
        if self._compiling is not None:
            self._compiling.stop()

    def measure(
        self,
        batch: RaggedBatch,
        rows: Sequence[MethodRow],
        origin: Origin = UNKNOWN_ORIGIN,
        makers: Sequence[Maker] = MAKERS,
        worst: bool = True,
    ) -> StepSummary:
        """The summary of a batch, with what each row would do to it. Rows whose inputs were not sent are left out.

        With `worst`, also its worst sequences, the first `keep_worst` by each ranking with their log-probs.
        """

        fused = self._pass_for(batch)
        if fused is not None and {maker.name for maker in makers} >= IN_PASS:
            found = self._by_pass(fused, batch, rows, origin, makers, worst)
            if found is not None:
                return found
        return finished(
            self._with_fallback(in_one(partial(self._by_torch, batch, rows, origin=origin, makers=makers, worst=worst)))
        )

    def _by_torch(
        self,
        batch: RaggedBatch,
        rows: Sequence[MethodRow],
        block_tokens: int,
        origin: Origin = UNKNOWN_ORIGIN,
        makers: Sequence[Maker] = MAKERS,
        worst: bool = True,
    ) -> StepSummary:
        loaded = DeviceBatch.load(batch, self.device)
        return summarise(loaded, rows, block_tokens, origin, makers, self.keep_worst if worst else None)

    def _pass_for(self, batch: RaggedBatch) -> Fused | None:
        """What is quicker than torch on the device for a batch of this size; None if nothing."""
        return self._fused if batch.tokens < LEAST_GPU_TOKENS or self.device.type == "cpu" else None

    def _by_pass(
        self,
        fused: Fused,
        batch: RaggedBatch,
        rows: Sequence[MethodRow],
        origin: Origin,
        makers: Sequence[Maker],
        worst: bool,
    ) -> StepSummary | None:
        """The summary by the fused pass, None where the batch is none for it; torch adds what it does not make."""
        found = fused(batch, rows, origin, self.keep_worst if worst else None)
        if found is None:
            return None
        arrays = self._with_others(found.arrays, batch, rows, origin, makers)
        return found if arrays is found.arrays else replace(found, arrays=arrays)

    def _with_others(
        self, found: Arrays, batch: RaggedBatch, rows: Sequence[MethodRow], origin: Origin, makers: Sequence[Maker]
    ) -> Arrays:
        """What the pass found, and the tables of these makers that it does not make."""
        others = [maker for maker in makers if maker.name not in IN_PASS and maker.makes_any(batch)]
        if not others:
            return found
        return with_tables(found, DeviceBatch.load(batch, CPU), rows, CPU_BLOCK_TOKENS, origin, others)

    def evaluate(
        self,
        batch: RaggedBatch,
        rows: Sequence[MethodRow] | None = None,
        detail: Detail = "none",
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> dict[str, Any]:
        """The answer of /v1/evaluate as one value: figures, `methods` in the order asked, and the detail asked for."""
        return finished(self.evaluation(batch, rows, detail, origin)).answer()

    def evaluation(
        self,
        batch: RaggedBatch,
        rows: Sequence[MethodRow] | None = None,
        detail: Detail = "none",
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> Slices[Evaluation]:
        """The same in slices, and with masks and figures of sequences in columns."""

        wanted = PRESETS if rows is None else rows
        fused = self._pass_for(batch)
        if fused is not None:
            further = partial(self._with_others, batch=batch, rows=(), origin=origin, makers=OF_DATA)
            found = fused.evaluation(batch, wanted, detail, origin, further)
            if found is not None:
                return (yield from found)

        def run(block_tokens: int) -> Slices[Evaluation]:
            return evaluation(DeviceBatch.load(batch, self.device), wanted, detail, origin, block_tokens)

        return (yield from self._with_fallback(run))

    def _with_fallback(self, run: Callable[[int], Slices[Result]]) -> Slices[Result]:
        """What `run` gives by torch, for blocks of so many tokens."""
        return one_at_a_time(self._by_torch_alone, self._falling_back(run))

    def _falling_back(self, run: Callable[[int], Slices[Result]]) -> Slices[Result]:
        block_tokens = self.block_tokens
        while True:
            try:
                return (yield from run(block_tokens))
            except torch.OutOfMemoryError:
                self.fallbacks += 1
                if block_tokens <= SMALLEST_BLOCK_TOKENS:
                    self._give_up_device()
                else:
                    block_tokens //= 4
            except RuntimeError:
                if self.device.type == "cpu":
                    raise
                return (yield from self._on_cpu(run))

    def _on_cpu(self, run: Callable[[int], Slices[Result]]) -> Slices[Result]:
        """Run a batch that the device failed on; where the CPU fails too, the batch is at fault, not the device."""
        kept = self.device, self.block_tokens
        self._give_up_device()
        try:
            result = yield from run(self.block_tokens)
        except BaseException:  # also where the rest is given up
            self.device, self.block_tokens = kept
            raise
        self.fallbacks += 1
        return result

    def _give_up_device(self) -> None:
        if self.device.type == "cpu":
            raise MemoryError("out of memory on the CPU")
        self.device = CPU
        self.block_tokens = CPU_BLOCK_TOKENS


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one; ConfigurationError where the named device is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"OFFPOLICY_DEVICE={name}: {error}. Use auto or cpu.") from error
    return device
