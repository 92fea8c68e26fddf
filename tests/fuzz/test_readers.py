"""Whatever bytes a reader is given, it reads or refuses them, in words that can be shown, and in time."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.fuzz.corpus import kept
from tests.fuzz.mean import of_seeds
from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS, Target

#: Seconds of a processor that reading takes at most: by itself, and for each byte.
FIXED, OF_A_BYTE = 1.0, 20e-6
#: How many are tried of a JSON target's mean values in all places: `make fuzz` tries each.
CHOSEN = 100
CASES = list(kept())


def takes(target: Target, data: bytes) -> bool:
    """Whether the target reads the bytes, which is in time."""
    began = time.thread_time()
    taken = target.takes(data)
    assert time.thread_time() - began < FIXED + OF_A_BYTE * len(data)
    return taken


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """What is loaded once is in no reader's time."""
    for target in TARGETS.values():
        assert any(target.takes(seed) for seed in target.seeds()), target.name
    yield


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_that_are_nearly_right_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=40)
    @given(mutated(target.seeds()))
    def check(data: bytes) -> None:
        takes(target, data)

    check()


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.is_json])
def test_a_mean_value_in_any_place_is_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    mean = list(of_seeds(target.seeds()))
    outcomes = {takes(target, data) for data in random.Random(name).sample(mean, CHOSEN)}
    assert outcomes == {True, False}


@pytest.mark.parametrize(("name", "path"), CASES, ids=[f"{name}/{path.name}" for name, path in CASES])
def test_what_was_read_wrong_once_is_read_or_refused(name: str, path: Path) -> None:
    takes(TARGETS[name], path.read_bytes())
