"""Synthetic batches: ragged, seeded, the same in every run; three float32 log-probs and a mask, 13 bytes per token.

Lengths are log-normal with a mean of 2,000 tokens and none longer than ten times the mean, so that padding to the
longest allowed makes ten positions of each token. Differences between the policies are small, with a few outliers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.wire.frame import encode

from tests.benchmarks.body import Body

MEAN_LENGTH = 2000
PADDING = 10
BYTES_PER_TOKEN = 13
SPREAD = 0.9  # of the logarithm of lengths
LOGPROBS = ("sampling_logprobs", "old_logprobs", "logprobs")
MASKED = 20  # in a batch with holes, one position in so many is masked


@dataclass(frozen=True)
class Synthetic:
    """A batch of `tokens` positions in about tokens / 2,000 `sequences`; `holes` masks one position in twenty.

    Another `seed` gives other log-probs and lengths.
    """

    tokens: int
    holes: bool = False
    seed: int = 0
    sequences: int | None = None

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """[S] int64, sum `tokens`."""
        sequences = self.sequences or max(self.tokens // MEAN_LENGTH, min(8, self.tokens))
        drawn = np.exp(SPREAD * np.random.default_rng(1 + 10 * self.seed).standard_normal(sequences))
        width = self.tokens / sequences * PADDING
        shares = np.minimum(drawn / drawn.sum() * self.tokens, width - 1)
        ends = np.round(np.cumsum(shares) / shares.sum() * self.tokens).astype(np.int64)
        return np.diff(ends, prepend=0)

    @property
    def width(self) -> int:
        """L: positions per row, so that a padded batch has ten times as many as there are tokens."""
        return max(self.tokens * PADDING // len(self.lengths), int(self.lengths.max()))

    @cached_property
    def columns(self) -> Mapping[str, NDArray[np.float32]]:
        """The three log-probs, [T] float32."""
        source = np.random.default_rng(2 + 10 * self.seed)
        sampling = -source.standard_exponential(self.tokens, np.float32)
        # The engine's rounding moves every token a little; staleness moves one in a hundred by much.
        mismatch = 0.01 * source.standard_normal(self.tokens, np.float32)
        stale = 0.05 * source.standard_normal(self.tokens, np.float32)
        stale[::100] *= 20
        old = np.minimum(sampling + mismatch, np.float32(-1e-6))
        return {LOGPROBS[0]: sampling, LOGPROBS[1]: old, LOGPROBS[2]: np.minimum(old + stale, np.float32(-1e-6))}

    @cached_property
    def advantages(self) -> NDArray[np.float32]:
        """[S] float32 of both signs."""
        return np.random.default_rng(3).standard_normal(len(self.lengths), np.float32)

    @cached_property
    def mask(self) -> NDArray[np.uint8]:
        """[T] uint8."""
        mask = np.ones(self.tokens, np.uint8)
        if self.holes:
            mask[::MASKED] = 0
        return mask

    def batch(self, names: tuple[str, ...] = LOGPROBS) -> RaggedBatch:
        """The batch as the service would decode it."""
        columns = {name: self.columns[name] for name in names}
        return RaggedBatch.from_positions(self.lengths, columns, {"advantages": self.advantages}, self.mask != 0)

    def body(self, step: int, **envelope: int) -> Body:
        """One shard as a safetensors body; the arrays are shared by all bodies of the batch."""
        arrays: dict[str, NDArray] = {**self.columns, "mask": self.mask, "lengths": self.lengths}
        arrays["advantages"] = self.advantages
        return Body(encode({"step": step, **envelope}, arrays), "application/vnd.safetensors")

    def padded(self, column: NDArray) -> NDArray:
        """[T] -> [S, L], zeros behind each sequence."""
        rows = np.zeros((len(self.lengths), self.width), column.dtype)
        rows[np.arange(self.width) < self.lengths[:, None]] = column
        return rows
