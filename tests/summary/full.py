"""A batch with every array of the contract, measured."""

from functools import cache

import numpy as np
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.checks import Shard

from tests.fixtures.fused import ready_pass

LABELS = {"gpu": "a/b", "engine": "vllm"}
SHARD = Shard(3, LABELS, 12, keep_worst=2)
MEASURER = Measurer("cpu", keep_worst=2)


@cache
def any_measurer(keep_worst: int = 0) -> Measurer:
    """One on the CPU for tests of what is done with summaries: by the fused pass, thirty times as fast, if it is there.

    Once for a process, which would look for it on disk again.
    """
    measurer = Measurer("cpu", keep_worst=keep_worst)
    if (found := ready_pass()) is not None:
        measurer.use(found)
    return measurer


def measured(batch: RaggedBatch, measurer: Measurer = MEASURER) -> StepSummary:
    """Its summary as that of SHARD."""
    return measurer.measure(batch, PRESETS, Origin(12, 3, LABELS))


def full_batch(tokens: int = 600, sequences: int = 7, seed: int = 7, noise: float = 0.1) -> RaggedBatch:
    """Every array of the contract; policies `noise` nats apart."""
    random = np.random.default_rng(seed)
    lengths = random.multinomial(tokens, np.ones(sequences) / sequences).astype(np.int64)
    base = -random.exponential(0.7, tokens)
    columns: dict[str, np.ndarray] = {
        name: np.minimum(0, base + noise * random.standard_normal(tokens)).astype(np.float32)
        for name in ("sampling_logprobs", "old_logprobs", "logprobs")
    }
    columns["turns"] = random.integers(0, 20, tokens)
    columns["entropy"] = random.random(tokens).astype(np.float32)
    for name in ("sampling_experts", "old_experts", "experts"):
        columns[name] = random.integers(0, 8, (tokens, 4, 2)).astype(np.uint8)
    of_sequences: dict[str, np.ndarray] = {
        "advantages": random.standard_normal(sequences).astype(np.float32),
        "policy_versions": random.integers(-1, 14, sequences),
        "rewards": random.random(sequences).astype(np.float32),
    }
    mask = random.random(tokens) > 0.1
    columns["old_logprobs"][5:6] = np.nan
    for name in ("engine_logprobs", "old_logprobs_repeat", "old_support_logprobs", "support_logprobs"):
        columns[name] = (base + noise * random.standard_normal(tokens)).astype(np.float32)
    ids = tuple(f"s{i}" for i in range(sequences))
    return RaggedBatch.from_positions(lengths, columns, of_sequences, mask, sequence_ids=ids)


#: Of shard 3; and of another shard and another GPU.
FULL = measured(full_batch())
OTHER = MEASURER.measure(full_batch(400, 5), PRESETS, Origin(12, 4, {"gpu": "b", "engine": "vllm"}))
