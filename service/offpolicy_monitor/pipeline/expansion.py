"""How much memory a body may take while it is decoded, beyond the body itself, and its evaluation until it is answered.

Bounds from sizes, limits and, for JSON, from what is in the text: a list of empty lists takes thirty times its bytes as
objects, a list of numbers five to twenty times; the header of a frame is JSON too, and most of a posted summary.
Known before anything is parsed or a row is run. Knows no budget.
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
from offpolicy_monitor.wire.summaries import decompressed

JSON: Final = "application/json"
#: Bytes for each such character of JSON, for what it begins or ends: a value with its entries in lists and arrays, a
#: list or an object, a key with its entry, a text.
COSTS: Final = {",": 64, "[": 104, "{": 104, ":": 120, '"': 24}
#: Bytes for each byte of the text: its copy by the parser and the text, of four bytes a character if one is wide.
NARROW, WIDE = 2, 5
#: The same of a frame's header: the envelope is a text in a text.
WIDE_IN_HEADER: Final = 12
#: Bytes of a header that take nothing to speak of.
SMALL_HEADER: Final = 1 << 14
ESCAPE: Final = "\\"
#: Before a frame's header: how long it is.
LENGTH_BYTES: Final = 8
#: Of a posted summary, bytes for each one that it has decompressed: of a small one, whose names of tables are many, and
#: of a large one beside all tables that there may be; and for each of these.
OF_SMALL_SUMMARY, OF_SUMMARY, OF_TABLE = 96, 40, 2048
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
    """Bytes for what the body may decompress to; of a plain one 1 where parsing will need some, else 0."""
    if body.encoding != "identity":
        return most_decoded(len(body.data), limits)
    parsed = body.media_type == JSON or len(large_header(body.data)) > 0
    return int(parsed or bytes_to_read_summary(body.data, limits) > 0)


def header(frame: memoryview) -> memoryview:
    """The header of a plain frame, empty for one that is not all there."""
    length = int.from_bytes(frame[:LENGTH_BYTES], "little")
    return frame[LENGTH_BYTES : LENGTH_BYTES + length] if length <= len(frame) - LENGTH_BYTES else frame[:0]


def large_header(frame: memoryview) -> memoryview:
    """The same where it is large, empty for a small one."""
    found = header(frame)
    return found if len(found) > SMALL_HEADER else frame[:0]


def bytes_to_read_summary(frame: memoryview, limits: Limits) -> int:
    """Bytes for reading the summary that is the one array of a plain frame; 0 for other frames."""
    begin = LENGTH_BYTES + int.from_bytes(frame[:LENGTH_BYTES], "little")
    size = decompressed(frame[begin:], limits.max_summary_bytes)
    return min(OF_SMALL_SUMMARY * size, OF_SUMMARY * size + OF_TABLE * limits.max_summary_tables)


def bytes_to_parse(plain: memoryview, media_type: str, limits: Limits) -> int:
    """Bytes for the objects that a plain body becomes while it is parsed: JSON, a large header, or a summary."""
    summary = 0 if media_type == JSON else bytes_to_read_summary(plain, limits)
    text, wide = (plain, WIDE) if media_type == JSON else (large_header(plain), WIDE_IN_HEADER)
    counts = occurrences(text, (*COSTS, ESCAPE))
    objects = sum(cost * counts[character] for character, cost in COSTS.items())
    return summary + objects + len(text) * (NARROW if not counts[ESCAPE] and is_ascii(text) else wide)


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
