import gzip
import os
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.wire.encoding import MAX_MEMBERS, decompress, most_decoded

from tests.fixtures.zeros import gzipped
from tests.wire.bodies import LIMITS

MEBIBYTE = 1 << 20
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstandard.ZstdCompressor().compress,
    "gzip": gzip.compress,
}
#: So many mebibytes of zeros.
ZEROS: dict[str, Callable[[int], bytes]] = {
    "zstd": lambda mebibytes: COMPRESS["zstd"](bytes(mebibytes * MEBIBYTE)),
    "gzip": gzipped,
}
both = pytest.mark.parametrize("encoding", ["zstd", "gzip"])


def refusal(body: bytes, encoding: str | None, **limits: int) -> Refusal:
    with pytest.raises(Refusal) as caught:
        decompress(body, encoding, replace(LIMITS, **limits))
    return caught.value


@both
@given(body=st.binary(max_size=5000))
def test_what_is_compressed_is_decompressed(encoding: str, body: bytes) -> None:
    assert decompress(COMPRESS[encoding](body), encoding, LIMITS) == body


@both
def test_several_members_are_one_body(encoding: str) -> None:
    parts = [b"first ", b"", os.urandom(40_000), b" last"]
    assert decompress(b"".join(map(COMPRESS[encoding], parts)), encoding, LIMITS) == b"".join(parts)


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
def test_a_body_without_an_encoding_is_given_back_uncopied(encoding: str | None) -> None:
    body = b"as it is"
    assert decompress(body, encoding, LIMITS).obj is body


def test_names_of_encodings_are_case_insensitive_and_x_gzip_is_gzip() -> None:
    assert decompress(gzip.compress(b"a"), "GZIP", LIMITS) == b"a"
    assert decompress(gzip.compress(b"a"), "x-gzip", LIMITS) == b"a"


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, zstd", "identity, gzip"])
def test_an_unknown_encoding_is_415(encoding: str) -> None:
    assert refusal(b"", encoding).status == 415


@both
def test_every_truncation_is_400(encoding: str) -> None:
    body = COMPRESS[encoding](b"some text that is long enough to be cut " * 3)
    for end in range(len(body)):
        assert refusal(body[:end], encoding).status == 400


@both
@pytest.mark.parametrize("garbage", [b"\x00", b"garbage", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"])
def test_garbage_behind_the_end_is_400(encoding: str, garbage: bytes) -> None:
    assert refusal(COMPRESS[encoding](b"body") + garbage, encoding).status == 400


@both
@pytest.mark.parametrize("body", [b"", b"plain text", bytes(100)])
def test_what_was_never_compressed_is_400(encoding: str, body: bytes) -> None:
    assert refusal(body, encoding).status == 400


def test_a_wrong_checksum_is_400() -> None:
    body = bytearray(gzip.compress(b"body"))
    body[-5] ^= 1
    assert refusal(bytes(body), "gzip").status == 400
    checked = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"body"))
    checked[-1] ^= 1
    assert refusal(bytes(checked), "zstd").status == 400


@both
def test_more_decoded_bytes_than_the_limit_are_413_and_name_the_setting(encoding: str) -> None:
    refused = refusal(COMPRESS[encoding](os.urandom(2000)), encoding, max_decoded_bytes=1000)
    assert refused.status == 413
    assert "1000" in refused.detail and "OFFPOLICY_MAX_DECODED_BYTES" in refused.detail


@both
def test_exactly_the_limit_of_decoded_bytes_passes(encoding: str) -> None:
    body = os.urandom(1000)
    assert decompress(COMPRESS[encoding](body), encoding, replace(LIMITS, max_decoded_bytes=1000)) == body


@cache
def bomb(encoding: str) -> bytes:
    """256 MiB of zeros."""
    return ZEROS[encoding](256)


@both
def test_a_bomb_is_413_and_names_the_ratio(encoding: str) -> None:
    refused = refusal(bomb(encoding), encoding)
    assert refused.status == 413
    assert "64" in refused.detail and "OFFPOLICY_MAX_DECODED_RATIO" in refused.detail


@both
def test_a_bomb_is_stopped_long_before_it_is_decoded(encoding: str) -> None:
    compressed = bomb(encoding)
    tracemalloc.start()
    refusal(compressed, encoding)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150 * MEBIBYTE


@both
def test_a_body_of_mostly_padding_may_have_any_ratio(encoding: str) -> None:
    body = bytes(64 * MEBIBYTE)
    compressed = ZEROS[encoding](64)
    assert len(body) > 500 * len(compressed)
    assert decompress(compressed, encoding, LIMITS) == body


def test_what_a_body_may_decode_to_is_known_beforehand() -> None:
    assert most_decoded(1000, LIMITS) == 64 * MEBIBYTE
    assert most_decoded(2 * MEBIBYTE, LIMITS) == 128 * MEBIBYTE
    assert most_decoded(100 * MEBIBYTE, LIMITS) == 512 * MEBIBYTE


def test_a_zstd_window_over_eight_mebibytes_is_400_and_said() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    refused = refusal(writer.compress(b"a" * 100) + writer.flush(), "zstd")
    assert refused.status == 400
    assert "window is over 8388608 bytes" in refused.detail


@both
def test_a_body_of_endless_empty_members_is_400(encoding: str) -> None:
    assert refusal(COMPRESS[encoding](b"") * (MAX_MEMBERS + 1), encoding).status == 400


@both
@given(tail=st.binary(max_size=300))
def test_random_bytes_behind_a_member_decode_or_are_refused(encoding: str, tail: bytes) -> None:
    try:
        decoded = decompress(COMPRESS[encoding](b"head") + tail, encoding, LIMITS)
    except Refusal as refused:
        assert refused.status == 400
    else:
        assert decoded[:4] == b"head"


@both
@given(data=st.data())
def test_a_mutated_body_decodes_or_is_refused(encoding: str, data: st.DataObject) -> None:
    body = bytearray(COMPRESS[encoding](b"a body of some length, " * 20))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decompress(bytes(body), encoding, LIMITS)
    except Refusal as refused:
        assert refused.status in (400, 413)


def test_gzip_of_another_window_size_is_read() -> None:
    compressor = zlib.compressobj(wbits=16 + 9)
    assert decompress(compressor.compress(b"abc") + compressor.flush(), "gzip", LIMITS) == b"abc"


def test_what_follows_a_whole_body_is_what_is_told_of_and_not_its_end() -> None:
    whole = gzip.compress(b"body")
    for cut, message in ((whole[:-3], "ends before"), (whole + b"\x1f\x8b", "what follows its end mark")):
        with pytest.raises(Refusal, match=message):
            decompress(memoryview(cut), "gzip", LIMITS)
