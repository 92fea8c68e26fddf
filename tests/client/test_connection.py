"""How a body is cut into what is given to the socket."""

from collections.abc import Sequence

import pytest
from offpolicy_monitor.client.connection import PIECE, SHORT, in_pieces


def test_a_small_body_is_one_piece() -> None:
    assert sizes([b"ab", memoryview(b"cde"), b"f"]) == [6]


@pytest.mark.parametrize(
    ("buffers", "expected"),
    [
        ([SHORT - 1, 1, 1], [SHORT, 1]),
        ([10, PIECE + 5, 10, 20], [10, PIECE, 5, 30]),
        ([PIECE, 2 * PIECE], [PIECE, PIECE, PIECE]),
        ([0, 0], []),
        ([], []),
    ],
)
def test_long_buffers_are_cut_and_short_neighbours_go_together(buffers: list[int], expected: list[int]) -> None:
    assert sizes([bytes(size) for size in buffers]) == expected


def test_what_is_long_is_not_copied() -> None:
    body = bytes(PIECE)
    [piece] = in_pieces([body])
    assert isinstance(piece, memoryview) and piece.obj is body


def sizes(buffers: Sequence[bytes | memoryview]) -> list[int]:
    """The sizes of the pieces, which must be the same bytes."""
    pieces = list(in_pieces(buffers))
    assert b"".join(pieces) == b"".join(buffers)
    return list(map(len, pieces))
