"""What decoding may take is known before it is taken, from sizes, limits and the characters of JSON."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.pipeline.decoder import limits_of
from offpolicy_monitor.pipeline.expansion import bytes_to_open, bytes_to_parse
from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.settings import Settings

from tests.pipeline import decoding_peaks
from tests.pipeline.decoding_peaks import BODIES, media_type_of

MEBIBYTE = 1 << 20
LIMITS: dict[str, Any] = {"max_decoded_bytes": 200 * MEBIBYTE, "max_decoded_ratio": 64, "max_json_bytes": 3 * MEBIBYTE}
JSON = "application/json"
SAFETENSORS = "application/vnd.safetensors"
DEFAULT = limits_of(Settings(_env_file=None))
#: What decoding takes whatever the body: code that runs for the first time, a refusal.
FIXED = 1 << 20


@pytest.mark.parametrize(
    ("size", "media_type", "encoding", "needed"),
    [
        (1000, SAFETENSORS, "identity", 0),
        (1000, SAFETENSORS, "zstd", 64 * MEBIBYTE),
        (2 * MEBIBYTE, SAFETENSORS, "gzip", 128 * MEBIBYTE),
        (9 * MEBIBYTE, SAFETENSORS, "gzip", 200 * MEBIBYTE),
        (1000, JSON, "identity", 1),
        (1000, JSON, "zstd", 64 * MEBIBYTE),
    ],
)
def test_opening_a_body_needs_what_it_may_become(size: int, media_type: str, encoding: str, needed: int) -> None:
    limits = limits_of(Settings(_env_file=None, **LIMITS))
    assert bytes_to_open(Body(memoryview(bytes(size)), media_type, encoding), limits) == needed


def test_parsing_needs_the_text_and_what_its_characters_stand_for() -> None:
    assert bytes_to_parse(memoryview(b""), JSON, DEFAULT) == 0
    objects = 2 * 104 + 120 + 64 + 2 * 24
    assert bytes_to_parse(memoryview(b'{"a": [1, 2]}'), JSON, DEFAULT) == 2 * 13 + objects
    assert bytes_to_parse(memoryview('{"é": [1, 2]}'.encode()), JSON, DEFAULT) == 5 * 14 + objects
    assert bytes_to_parse(memoryview(b'{"\\n": [1, 2]}'), JSON, DEFAULT) == 5 * 14 + objects
    assert bytes_to_parse(memoryview(b'{"a": [1, 2]}'), SAFETENSORS, DEFAULT) == 0
    small, large = (struct.pack("<Q", length) + b"[" * length + bytes(9) for length in (1 << 14, (1 << 14) + 1))
    assert bytes_to_parse(memoryview(small), SAFETENSORS, DEFAULT) == 0
    assert bytes_to_parse(memoryview(large), SAFETENSORS, DEFAULT) == (104 + 2) * ((1 << 14) + 1)
    assert bytes_to_open(Body(memoryview(large), SAFETENSORS, "identity"), DEFAULT) == 1
    many = b"," * (3 * MEBIBYTE + 5)
    assert bytes_to_parse(memoryview(many), JSON, DEFAULT) == (2 + 64) * len(many)


@pytest.fixture(scope="module")
def peaks() -> dict[str, int]:
    """Bytes that decoding takes of this machine's memory, by body."""
    script = Path(decoding_peaks.__file__)
    answer = subprocess.run([sys.executable, str(script)], capture_output=True, check=True, text=True, timeout=300)
    found: dict[str, int] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize("name", BODIES)
def test_no_body_takes_more_than_is_reserved_for_parsing_it(name: str, peaks: dict[str, int]) -> None:
    assert peaks[name] <= bytes_to_parse(memoryview(BODIES[name]()), media_type_of(name), DEFAULT) + FIXED


def test_what_is_reserved_for_ordinary_log_probs_is_not_much_more_than_they_take(peaks: dict[str, int]) -> None:
    assert bytes_to_parse(memoryview(BODIES["ordinary"]()), JSON, DEFAULT) <= 3 * peaks["ordinary"]
