"""What everything beyond the core figures costs: time per token over the 13-sum core, and bytes of the stored summary.

The batch brings all that a trainer can send without experts: versions and turns per token, advantages, ids.
"""

import numpy as np
import torch
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.ragged import Segments
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.tables import OF_DATA, OF_INGESTED, Maker
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary import to_bytes

from tests.benchmarks.batches import LOGPROBS, Synthetic
from tests.benchmarks.compute import measurer_of
from tests.benchmarks.rows import Row, at_most
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import NANOSECONDS, Progress, Work, seconds_by_turns

ORIGIN = Origin(policy_version=4, shard=0, labels={"engine": "vllm", "gpu": "h100"})
TURN_TOKENS = 512
LARGEST_STORED = 32 * 1024
KIBIBYTE = 1024


def catalogue_rows(scale: Scale, progress: Progress) -> list[Row]:
    """Nanoseconds per token of the full set over the 13-sum core, of each maker, and the stored size."""
    source = Synthetic(scale.core_tokens)
    batch, measurer = full_batch(source), measurer_of(scale.compiled)
    makers = (*OF_DATA, *OF_INGESTED)
    works: dict[str, Work] = {
        "sums": thirteen_sums(source),
        "core": lambda: measurer.measure(batch, PRESETS, ORIGIN, (), worst=False),
        "full": lambda: measurer.measure(batch, PRESETS, ORIGIN, makers),
        **{maker.name: with_maker(measurer, batch, maker) for maker in makers},
        "worst": lambda: measurer.measure(batch, PRESETS, ORIGIN, ()),
    }
    ns = {n: s / source.tokens * NANOSECONDS for n, s in seconds_by_turns(works, scale.repeats, progress).items()}
    unit, sums = "ns per token", ns["sums"]
    stored = len(to_bytes(measurer.measure(batch, PRESETS, ORIGIN, makers)))
    size = f"{source.tokens:,} tokens in {len(source.lengths)} sequences"
    return [
        Row("13 sums of one gap (the core's core)", sums, unit, note=size),
        Row("three gaps and presets without tables, over 13 sums", ns["core"], unit, ns["core"] / sums, better="less"),
        Row(
            "the full set: gaps, presets and every table, over 13 sums",
            ns["full"],
            unit,
            ns["full"] / sums,
            better="less",
        ),
        *(
            Row(f"... of it {name}", ns[name] - ns["core"], unit, note="more than without tables")
            for name in (*(maker.name for maker in makers), "worst")
        ),
        Row("stored summary", stored / KIBIBYTE, "KiB", stored / LARGEST_STORED, at_most(1), size),
    ]


def with_maker(measurer: Measurer, batch: RaggedBatch, maker: Maker) -> Work:
    """Measure with one maker alone."""
    return lambda: measurer.measure(batch, PRESETS, ORIGIN, (maker,), worst=False)


def full_batch(source: Synthetic) -> RaggedBatch:
    """The synthetic batch with a version and a turn per token."""
    positions = np.concatenate([np.arange(length) for length in source.lengths])
    columns = {name: source.columns[name] for name in LOGPROBS}
    columns["policy_versions"] = np.minimum(positions // TURN_TOKENS, 4)
    columns["turns"] = positions // TURN_TOKENS
    return RaggedBatch.from_positions(source.lengths, columns, {"advantages": source.advantages}, source.mask != 0)


def thirteen_sums(source: Synthetic) -> Work:
    """One gap's columns and thirteen sums per sequence, as the smallest useful monitor would make them."""
    old, sampling = (torch.from_numpy(source.columns[name]) for name in (LOGPROBS[1], LOGPROBS[0]))
    segments = Segments(source.lengths, torch.device("cpu"))
    policies = torch.stack([sampling, old])

    def work() -> object:
        gap = Gaps(policies, ((1, 0),), segments)
        derived = gap.columns
        columns = (
            *(column[0] for column in derived[:8]),
            derived.log_ratio[0].exp(),
            old,
            sampling,
            old.exp(),
            sampling.exp(),
        )
        return [segments.sum(column) for column in columns]

    return work
