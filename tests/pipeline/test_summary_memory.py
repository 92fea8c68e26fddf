"""What reading a posted summary takes of memory is reserved before, whatever it holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from offpolicy_monitor.pipeline.decoder import limits_of
from offpolicy_monitor.pipeline.expansion import bytes_to_open, bytes_to_parse
from offpolicy_monitor.pipeline.shards import SMALL_SUMMARY
from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.summary.remembered import Remembering
from offpolicy_monitor.wire.frame import MEDIA_TYPE

from tests.fixtures.reduced import arrays_of, envelope_of, raw_body
from tests.pipeline.worst_summaries import GOOD, MADE, SIZES, posted

ROOT = Path(__file__).parents[2]
LIMITS = limits_of(Settings(_env_file=None))
#: Seconds of a processor within which any is read or refused; the worst one takes a fifth of it.
SOON = 0.2
#: What the allocator keeps.
FIXED = 1 << 20


def reserved(body: bytes) -> int:
    return bytes_to_parse(memoryview(body), MEDIA_TYPE, LIMITS)


@pytest.fixture(scope="module")
def peaks() -> dict[str, dict[str, tuple[int, float]]]:
    """Bytes that reading takes of this machine's memory, and seconds of a processor, by name and size."""
    command = [sys.executable, "-m", "tests.pipeline.worst_summaries"]
    answer = subprocess.run(command, input=GOOD, capture_output=True, check=True, timeout=300, cwd=ROOT)
    found: dict[str, dict[str, tuple[int, float]]] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize("name", MADE)
def test_no_summary_takes_more_than_is_reserved_for_reading_it(
    name: str, peaks: dict[str, dict[str, tuple[int, float]]]
) -> None:
    for size in SIZES:
        most, seconds = peaks[name][str(size)]
        assert most <= reserved(MADE[name](size)) + FIXED, size
        assert seconds < SOON, size


def test_what_is_reserved_for_an_ordinary_summary_lets_many_in_and_large_ones_go_to_the_decoder() -> None:
    body = posted(GOOD)
    assert 1 << 20 < reserved(body) < SMALL_SUMMARY
    assert reserved(MADE["keys"](1 << 20)) > SMALL_SUMMARY
    assert bytes_to_open(Body(memoryview(body), MEDIA_TYPE, "identity"), LIMITS) == 1


def test_nothing_is_reserved_for_frames_of_tokens() -> None:
    body = memoryview(raw_body(envelope_of(0, 1), arrays_of(0)))
    assert (reserved(bytes(body)), bytes_to_open(Body(body, MEDIA_TYPE, "identity"), LIMITS)) == (0, 0)


def test_of_what_a_client_can_make_large_few_are_remembered() -> None:
    made = list[int]()

    def make(size: int) -> list[int]:
        made.append(size)
        return [size]

    remembered = Remembering(make, lambda found, size: size, most=100)
    assert all(remembered(size) is remembered(size) for size in (10, 20, 30))
    assert made == [10, 20, 30]
    remembered(90)
    assert remembered.weight <= 100
    remembered(10)
    assert made == [10, 20, 30, 90, 10]
    assert remembered(1000) == [1000]
    assert remembered.weight == 0
