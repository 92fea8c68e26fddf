"""What a JSON text will cost is told by its characters; parsing it is not looked at by Python's collector."""

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.wire.json_body import parse_json
from offpolicy_monitor.wire.json_text import is_ascii, occurrences

from tests.wire.bodies import LIMITS


def test_characters_are_counted_across_the_pieces_of_a_text() -> None:
    text = memoryview(b'{"a":[1,2]}' * 100_000)
    assert occurrences(text, ',[{:"x') == {",": 100_000, "[": 100_000, "{": 100_000, ":": 100_000, '"': 200_000, "x": 0}
    assert occurrences(memoryview(b""), "[") == {"[": 0}


def test_a_text_is_ascii_where_no_byte_is_beyond_it() -> None:
    assert is_ascii(memoryview(b""))
    assert is_ascii(memoryview(b"\x00a\x7f"))
    assert not is_ascii(memoryview("é".encode()))


def test_lists_and_objects_are_counted_before_they_are_made() -> None:
    body = memoryview(b'{"x":[[],{}]}')
    assert parse_json(body, replace(LIMITS, max_json_lists=4))[0] == {"x": [[], {}]}
    with pytest.raises(Refusal, match="4 lists and objects is over the limit of 3; raise OFFPOLICY_MAX_JSON_LISTS"):
        parse_json(body, replace(LIMITS, max_json_lists=3))


def test_the_collector_waits_while_a_text_is_parsed_and_goes_on_after_it() -> None:
    collected: list[str] = []

    def note(phase: str, _: dict[str, Any]) -> None:
        collected.append(phase)

    body = memoryview(b'{"x":[' + b"[]," * 200_000 + b"[]]}")
    gc.callbacks.append(note)
    try:
        with ThreadPoolExecutor(4) as threads:
            parsed = list(threads.map(lambda _: len(str(parse_json(body, LIMITS)[0]["x"])[:9]), range(8)))
    finally:
        gc.callbacks.remove(note)
    assert parsed == [9] * 8
    assert len(collected) < 200  # of each text alone it would be some three hundred times
    assert gc.isenabled()


def test_lists_that_become_arrays_are_never_looked_through() -> None:
    collected = list[str]()

    def note(phase: str, _: dict[str, Any]) -> None:
        collected.append(phase)

    body = memoryview(b'{"sampling_logprobs":[' + b"[-1.5]," * 200_000 + b"[-1.5]]}")
    gc.collect()
    gc.callbacks.append(note)
    try:
        _, arrays = parse_json(body, LIMITS)
        arrays_made = [collected.copy(), arrays["sampling_logprobs"].values.size]
    finally:
        gc.callbacks.remove(note)
    assert arrays_made == [[], 200_001]
    assert gc.isenabled()


def test_the_collector_goes_on_after_a_text_that_is_no_json() -> None:
    with pytest.raises(Refusal, match="not valid JSON"):
        parse_json(memoryview(b"{"), LIMITS)
    assert gc.isenabled()
