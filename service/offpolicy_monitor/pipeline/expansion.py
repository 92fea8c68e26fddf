"""How much memory a complete body may take while it is decoded, and its evaluation until it is answered.

Bounds from sizes and limits alone, known before the first byte is decoded or the first row is run. Knows no budget.
"""

from collections.abc import Sequence

from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.pipeline.values import Body, Detail
from offpolicy_monitor.wire.encoding import most_decoded
from offpolicy_monitor.wire.limits import Limits

# JSON numbers become Python objects while they are parsed: up to this many bytes for each byte of text.
JSON_EXPANSION = 8
# What an evaluation holds between two slices: columns of the three gaps for each token of a block (of this many tokens,
# unless a sequence is longer), the order of d^2 of a gap that M2PO looks at, and the figures of each row and sequence.
BLOCK_TOKENS = 1 << 18
BLOCK_BYTES_A_TOKEN = 200
ORDER_BYTES_A_TOKEN = 48
ROW_BYTES = 4096
SEQUENCE_BYTES = 3 * 5 * 8
WEIGHT_BYTES = 8


def bytes_to_decode(body: Body, limits: Limits) -> int:
    """Bytes for what the body may decompress to, and for parsing it; 0 where the arrays are views of the body."""
    encoded = body.encoding != "identity"
    plain = most_decoded(len(body.data), limits) if encoded else len(body.data)
    parsed = JSON_EXPANSION * min(plain, limits.max_json_bytes) if body.media_type == "application/json" else 0
    return (plain if encoded else 0) + parsed


def bytes_to_evaluate(batch: RaggedBatch, rows: Sequence[MethodRow], detail: Detail) -> int:
    """Bytes for evaluating these rows on a batch, until the answer is sent."""
    positions, longest = int(batch.lengths.sum()), int(batch.lengths.max(initial=0))
    gaps = {row.gap for row in rows if row.method.request_wide}
    working = BLOCK_BYTES_A_TOKEN * min(batch.tokens, max(BLOCK_TOKENS, longest)) + ROW_BYTES * len(rows)
    working += ORDER_BYTES_A_TOKEN * batch.tokens * len(gaps)
    if detail == "none":
        return working
    working += batch.sequences * (SEQUENCE_BYTES + len(rows))
    if detail == "sequence":
        return working
    weights = sum(row.method.weights for row in rows)
    return working + positions * (len(rows) + WEIGHT_BYTES * weights)
