"""How much memory a complete body may take while it is decoded, beyond the body itself.

A bound from sizes and limits alone, known before the first byte is decoded. Knows no budget.
"""

from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.wire.encoding import most_decoded
from offpolicy_monitor.wire.limits import Limits

# JSON numbers become Python objects while they are parsed: up to this many bytes for each byte of text.
JSON_EXPANSION = 8


def bytes_to_decode(body: Body, limits: Limits) -> int:
    """Bytes for what the body may decompress to, and for parsing it; 0 where the arrays are views of the body."""
    encoded = body.encoding != "identity"
    plain = most_decoded(len(body.data), limits) if encoded else len(body.data)
    parsed = JSON_EXPANSION * min(plain, limits.max_json_bytes) if body.media_type == "application/json" else 0
    return (plain if encoded else 0) + parsed
