"""How much memory a body may take while it is decoded, beyond the body itself, and its evaluation until it is answered.

Bounds from sizes, limits and, for JSON, from what is in the text: a list of empty lists takes thirty times its bytes as
objects, a list of numbers five to twenty times. Known before anything is parsed or a row is run. Knows no budget.
"""

from collections.abc import Sequence
from typing import Final

from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import looks_ahead
from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.summary.evaluation import Detail
from offpolicy_monitor.wire.encoding import most_decoded
from offpolicy_monitor.wire.json_text import is_ascii, occurrences
from offpolicy_monitor.wire.limits import Limits

JSON: Final = "application/json"
#: Bytes for each such character of JSON, for what it begins or ends: a value with its entries in lists and arrays, a
#: list or an object, a key with its entry, a text.
COSTS: Final = {",": 64, "[": 104, "{": 104, ":": 120, '"': 24}
#: Bytes for each byte of the text: its copy by the parser and the text, of four bytes a character if one is wide.
NARROW, WIDE = 2, 5
ESCAPE: Final = "\\"
# What an evaluation holds between two slices: columns of the three gaps for each token of a block (of this many tokens,
# unless a sequence is longer), the order of d^2, or the scores, of a gap that a rule looks ahead at, and the figures of
# each row and sequence.
BLOCK_TOKENS = 1 << 18
BLOCK_BYTES_PER_TOKEN = 200
ORDER_BYTES_PER_TOKEN = 48
ROW_BYTES = 4096
SEQUENCE_BYTES = 3 * 5 * 8
WEIGHT_BYTES = 8


def bytes_to_open(body: Body, limits: Limits) -> int:
    """Bytes for what the body may decompress to; 0 for a plain frame, which needs none, 1 for JSON, which will."""
    return most_decoded(len(body.data), limits) if body.encoding != "identity" else int(body.media_type == JSON)


def bytes_to_parse(plain: memoryview, media_type: str) -> int:
    """Bytes for the objects that the plain body becomes while it is parsed; 0 where its arrays are views of it."""
    if media_type != JSON:
        return 0
    counts = occurrences(plain, (*COSTS, ESCAPE))
    objects = sum(cost * counts[character] for character, cost in COSTS.items())
    return objects + len(plain) * (NARROW if not counts[ESCAPE] and is_ascii(plain) else WIDE)


def bytes_to_evaluate(batch: RaggedBatch, rows: Sequence[MethodRow], detail: Detail) -> int:
    """Bytes for evaluating these rows on a batch, until the answer is sent."""
    positions, longest = int(batch.lengths.sum()), int(batch.lengths.max(initial=0))
    orders = {(row.gap, row.method.name) for row in rows if looks_ahead(row.rule)}
    working = BLOCK_BYTES_PER_TOKEN * min(batch.tokens, max(BLOCK_TOKENS, longest)) + ROW_BYTES * len(rows)
    working += ORDER_BYTES_PER_TOKEN * batch.tokens * len(orders)
    if detail == "none":
        return working
    working += batch.sequences * (SEQUENCE_BYTES + len(rows))
    if detail == "sequence":
        return working
    weights = sum(row.weight is not None for row in rows)
    return working + positions * (len(rows) + WEIGHT_BYTES * weights)
