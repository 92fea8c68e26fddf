"""Decode: the body of a request, already decompressed, becomes a message.

Knows the two media types and which arrays make a batch; how each is spelled and laid out is known further down.
Whatever bytes come in, what comes out is a message or a Refusal: 400 no JSON or safetensors, 413, 415, 422.
"""

from collections.abc import Callable, Mapping

from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.errors import FieldError, Refusal
from offpolicy_monitor.vocabulary import LOGPROBS
from offpolicy_monitor.wire import frame
from offpolicy_monitor.wire.arrays import SUMMARY, all_invalid, invalid
from offpolicy_monitor.wire.assemble import assemble, read_mask
from offpolicy_monitor.wire.frame_body import parse_frame
from offpolicy_monitor.wire.json_body import parse_json
from offpolicy_monitor.wire.layout import Layout
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import Evaluation, LaterHalf, Message, Reduced
from offpolicy_monitor.wire.schema import Envelope, EvaluateEnvelope, parse_envelope
from offpolicy_monitor.wire.sent import SentArray
from offpolicy_monitor.wire.summaries import decode_summary

Parsed = tuple[dict[str, object], dict[str, SentArray]]

MEDIA_TYPES: Mapping[str, Callable[[memoryview, Limits], Parsed]] = {
    "application/json": parse_json,
    frame.MEDIA_TYPE: parse_frame,
}


def decode_batch(body: bytes | memoryview, media_type: str | None, limits: Limits) -> Message | LaterHalf | Reduced:
    """Decode one shard of one gradient step.

    A body that names a `rollout` may have two halves: without `logprobs` it is a Message whose `is_first_half` holds;
    with `logprobs` alone it is a LaterHalf, to be joined (halves.join) with the first half that was kept. A frame whose
    one array is `summary` is Reduced.
    """
    fields, arrays = _parse(body, media_type, limits)
    envelope = parse_envelope(Envelope, fields, limits)
    if SUMMARY in arrays:
        return decode_summary(envelope, arrays[SUMMARY].values, limits)
    present = [name for name in LOGPROBS if name in arrays]
    if envelope.rollout is not None and present == ["logprobs"]:
        return LaterHalf(envelope, arrays)
    first_half = envelope.rollout is not None and bool(present) and "logprobs" not in present
    return Message(envelope, _batch(arrays, envelope, limits, least=1 if first_half else 2))


def decode_evaluation(body: bytes | memoryview, media_type: str | None, limits: Limits) -> Evaluation:
    """Decode a body for stateless evaluation: `step` is optional, `methods` is allowed, halves are not."""
    fields, arrays = _parse(body, media_type, limits)
    if SUMMARY in arrays:
        raise invalid(SUMMARY, "has no tokens to evaluate: post it to /v1/runs/{run}/batches")
    envelope = parse_envelope(EvaluateEnvelope, fields, limits)
    return Evaluation(envelope, _batch(arrays, envelope, limits, least=2), envelope.methods)


def _parse(body: bytes | memoryview, media_type: str | None, limits: Limits) -> Parsed:
    essence = (media_type or "").partition(";")[0].strip().lower()
    if essence not in MEDIA_TYPES:
        raise Refusal(415, "unsupported-media-type", f"Content-Type must be one of {', '.join(MEDIA_TYPES)}")
    return MEDIA_TYPES[essence](memoryview(body), limits)


def _batch(arrays: Mapping[str, SentArray], envelope: Envelope, limits: Limits, least: int) -> RaggedBatch:
    absent = [name for name in LOGPROBS if name not in arrays]
    if len(LOGPROBS) - len(absent) < least:
        raise all_invalid([FieldError(name, "at least two of the three log-prob arrays are needed") for name in absent])
    layout = Layout.of(arrays, limits)
    return assemble(arrays, layout, read_mask(arrays, layout), envelope.sequence_ids)
