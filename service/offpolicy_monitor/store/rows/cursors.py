"""Pages of a listing: opaque cursors that name the last row seen, so that new rows never shift a page.

Knows nothing of what is listed.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from offpolicy_monitor.errors import Refusal

LARGEST_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class Page:
    """Rows ready for JSON, and the cursor of the next page; None at the end."""

    rows: list[dict[str, Any]]
    next_cursor: str | None


def encode_cursor(*position: int) -> str:
    """A cursor that continues after `position`."""
    return base64.urlsafe_b64encode(orjson.dumps(position)).rstrip(b"=").decode()


def decode_cursor(cursor: str, length: int) -> list[int]:
    """The position in a cursor of `length` integers; Refusal 422 where it is not one of ours."""
    try:
        position = orjson.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise _bad_cursor() from error
    if not isinstance(position, list) or len(position) != length or not all(map(_is_position, position)):
        raise _bad_cursor()
    return position


def cut(rows: Sequence[Any], limit: int) -> tuple[Sequence[Any], bool]:
    """The first `limit` rows, and whether there are more."""
    return rows[:limit], len(rows) > limit


def _is_position(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_INTEGER


def _bad_cursor() -> Refusal:
    return Refusal.of_field(422, "bad-cursor", "cursor", "is not a cursor that this listing gave out")
