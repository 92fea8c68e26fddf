"""Which restart epoch a trainer is in: what schedulers say, and what the service knows."""

import pytest
from offpolicy_monitor.client.attempt import declared, following
from offpolicy_monitor.errors import ConfigurationError


@pytest.mark.parametrize(
    ("environment", "attempt"),
    [
        ({}, None),
        ({"OFFPOLICY_ATTEMPT": "0", "SLURM_RESTART_COUNT": "4"}, 0),
        ({"OFFPOLICY_ATTEMPT": "12"}, 12),
        ({"OFFPOLICY_ATTEMPT": ""}, None),
        ({"TORCHELASTIC_RESTART_COUNT": "0"}, None),
        ({"TORCHELASTIC_RESTART_COUNT": "3"}, 3),
        ({"SLURM_RESTART_COUNT": "1", "TORCHELASTIC_RESTART_COUNT": "0"}, 1000),
        ({"SLURM_RESTART_COUNT": "1", "TORCHELASTIC_RESTART_COUNT": "2"}, 1002),
        ({"AWS_BATCH_JOB_ATTEMPT": "1"}, None),
        ({"AWS_BATCH_JOB_ATTEMPT": "3"}, 2000),
        ({"FLYTE_ATTEMPT_NUMBER": "what"}, None),
    ],
)
def test_the_environment_tells_the_attempt(environment: dict[str, str], attempt: int | None) -> None:
    assert declared(environment) == attempt


def test_an_attempt_that_is_no_number_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="OFFPOLICY_ATTEMPT must be a whole number, not 'two'"):
        declared({"OFFPOLICY_ATTEMPT": "two"})


@pytest.mark.parametrize(
    ("run", "step", "refused", "attempt"),
    [
        (None, 0, None, 0),
        (None, 0, 3, 0),
        ({"last_step": None, "attempt": None}, 5, None, 0),
        ({"last_step": 9, "attempt": 0}, 10, None, 0),
        ({"last_step": 9, "attempt": 2}, 10, None, 2),
        ({"last_step": 9, "attempt": 0}, 9, None, 0),
        ({"last_step": 9, "attempt": 2}, 4, None, 3),
        ({"last_step": 9, "attempt": 0}, 9, 0, 1),
        ({"last_step": 9, "attempt": 1}, 9, 0, 1),
        ({"last_step": 9, "attempt": 3}, 5, 0, 4),
    ],
)
def test_steps_that_were_begun_before_or_refused_begin_a_new_attempt(
    run: dict[str, int | None] | None, step: int, refused: int | None, attempt: int
) -> None:
    assert following(run, step, refused) == attempt
