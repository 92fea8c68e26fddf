"""What decoding may take is known from sizes and limits alone."""

from typing import Any

import pytest
from offpolicy_monitor.pipeline.expansion import bytes_to_decode
from offpolicy_monitor.pipeline.stages import limits_of
from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.settings import Settings

MEBIBYTE = 1 << 20
LIMITS: dict[str, Any] = {"max_decoded_bytes": 200 * MEBIBYTE, "max_decoded_ratio": 64, "max_json_bytes": 3 * MEBIBYTE}


@pytest.mark.parametrize(
    ("size", "media_type", "encoding", "needed"),
    [
        (1000, "application/vnd.safetensors", "identity", 0),
        (1000, "application/vnd.safetensors", "zstd", 64 * MEBIBYTE),
        (2 * MEBIBYTE, "application/vnd.safetensors", "gzip", 128 * MEBIBYTE),
        (9 * MEBIBYTE, "application/vnd.safetensors", "gzip", 200 * MEBIBYTE),
        (1000, "application/json", "identity", 8000),
        (9 * MEBIBYTE, "application/json", "identity", 24 * MEBIBYTE),
        (1000, "application/json", "zstd", 64 * MEBIBYTE + 24 * MEBIBYTE),
    ],
)
def test_a_body_needs_what_it_may_become_and_what_parsing_takes(
    size: int, media_type: str, encoding: str, needed: int
) -> None:
    limits = limits_of(Settings(_env_file=None, **LIMITS))
    assert bytes_to_decode(Body(memoryview(bytes(size)), media_type, encoding), limits) == needed
