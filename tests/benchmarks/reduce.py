"""Reducing at the source: bytes on the wire of a summary against those of its tokens, and the time that it takes.

Tokens are three float32 log-probs and a byte of mask, packed: 13 bytes each.
"""

from functools import partial

from offpolicy_monitor.client.reduce import reduced

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.rows import Row
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import Progress, Work, seconds_by_turns

SIZES = (2_000, 20_000, 200_000, 1_000_000)
KIBIBYTE = 1024
MILLISECONDS = 1e3
ENVELOPE = {"step": 0, "shard": 0, "shards": 1, "policy_version": 4, "labels": {"engine": "vllm", "gpu": "h100"}}


def reduce_rows(scale: Scale, progress: Progress) -> list[Row]:
    """KiB per summary and their ratio to the raw body, and milliseconds to make it, by size."""
    sources = {tokens: Synthetic(tokens) for tokens in SIZES}
    works: dict[str, Work] = {str(tokens): partial(summary_bytes, source) for tokens, source in sources.items()}
    seconds = seconds_by_turns(works, scale.repeats, progress)
    rows = []
    for tokens, source in sources.items():
        raw, size = source.body(0).nbytes, summary_bytes(source)
        what = f"summary of {tokens:,} tokens"
        note = f"{len(source.lengths)} sequences; raw {raw / KIBIBYTE:,.0f} KiB"
        rows.append(
            Row(f"{what}, bytes over the raw body", size / KIBIBYTE, "KiB", size / raw, note=note, better="less")
        )
        rows.append(Row(f"{what}, time to reduce", seconds[str(tokens)] * MILLISECONDS, "ms"))
    return rows


def summary_bytes(source: Synthetic) -> int:
    """Reduce a packed batch with advantages; answers the bytes of its summary."""
    arrays = {**source.columns, "lengths": source.lengths, "advantages": source.advantages}
    return len(reduced(ENVELOPE, arrays)["summary"])
