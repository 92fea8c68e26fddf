"""When a training step is over: what is declared, what is learned, what is open, and what time it is."""

from collections.abc import Sequence

import pytest
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.tables import CLOSED, COMPLETE, OPEN
from offpolicy_monitor.store.rows.training_step import TrainingStep


def training_step(states: str, declared: int | None = None, began: Sequence[float] = ()) -> TrainingStep:
    """A training step: one letter a gradient step, o(pen), c(losed), f(ull), - for one that was not seen."""
    known = {"o": OPEN, "c": CLOSED, "f": COMPLETE}
    times = {index: time for index, time in enumerate(began)}
    found = [
        GradientStep("r", 3, index, 0, 2, times.get(index, 100.0), 100.0, state=known[letter], minibatches=declared)
        for index, letter in enumerate(states)
        if letter != "-"
    ]
    return TrainingStep.of(found[::-1])


@pytest.mark.parametrize(
    ("states", "declared", "learned", "later", "over"),
    [
        ("f", 1, None, 0, True),
        ("f", 2, None, 2, False),
        ("ff", 2, None, 0, True),
        ("fc", 2, None, 0, True),
        ("fo", 2, None, 2, False),
        ("-f", 2, None, 2, False),
        ("fff", 2, None, 0, True),
        ("f", None, 1, 0, True),
        ("f", None, 2, 1, False),
        ("f", None, 2, 2, True),
        ("o", None, 2, 2, False),
        ("ff", None, 2, 0, True),
        ("f-f", None, 2, 1, False),
        ("f", None, None, 0, False),
        ("f", None, None, 1, True),
        ("o", None, None, 1, False),
        ("fo", None, 1, 0, False),
    ],
)
def test_a_step_is_over_when_all_it_is_known_to_have_is_there(
    states: str, declared: int | None, learned: int | None, later: int, over: bool
) -> None:
    assert training_step(states, declared).is_over(lambda: learned, lambda: later) == over


def test_a_step_is_as_old_as_its_newest_gradient_step() -> None:
    assert training_step("fo", 3, began=(100.0, 200.0)).since == 200.0


def test_a_gradient_step_that_was_lost_counts_among_those_that_a_step_has() -> None:
    assert training_step("f-f").known == 3
    assert [step.minibatch for step in training_step("foc").counting] == [0, 2]
