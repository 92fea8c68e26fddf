"""Bytes that are nearly right: a seed with a few edits, as a strategy that hypothesis makes smaller."""

from collections.abc import Sequence

from hypothesis import strategies as st

#: What readers look for, or stumble over.
PIECES = (
    b"\x00", b"\xff", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80\x00\x00\x00", b"[", b"]", b"{", b"}", b'"', b",",
    b":", b"\\", b"\\ud800", b"\xf0\x9f\x98\x80", b"-", b"1e400", b"9" * 30, b"NaN", b"null", b"\n", b"\r", b"\x1e",
    b"\xef\xbb\xbf",
)  # fmt: skip
Edit = tuple[float, int, bytes]
edits = st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES) | st.binary(max_size=3))


def edited(seed: bytes, changes: Sequence[Edit]) -> bytes:
    """The seed; at each place so many bytes are replaced by others."""
    for place, removed, put in changes:
        at = int(place * len(seed))
        seed = seed[:at] + put + seed[at + removed :]
    return seed


def mutated(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Seeds with one to four edits."""
    return st.builds(edited, st.sampled_from(seeds), st.lists(edits, min_size=1, max_size=4))
