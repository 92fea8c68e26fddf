"""Scenarios of the demo: nothing happens before the onset, and each does from then on what it says."""

import argparse
from functools import cache

import numpy as np
import pytest
import torch
from offpolicy_monitor.demo.cli import add_arguments, config_of
from offpolicy_monitor.demo.faults import Fault
from offpolicy_monitor.demo.message import Message
from offpolicy_monitor.demo.scenarios import SCENARIOS, config_at
from offpolicy_monitor.demo.trainer import Trainer

from tests.demo.small import small

ONSET = 6


@cache
def played(name: str, steps: int, **changes: object) -> list[Message]:
    """The last gradient step of each training step, of one unless asked otherwise; nobody changes what it gives out."""
    trainer = Trainer(small(**{"scenario": name, "onset": ONSET, "minibatches": 1} | changes))
    messages = []
    for step in range(steps):
        messages.append(list(trainer.gradient_steps(trainer.rollouts(step), step))[-1])
    return messages


def mismatch(message: Message) -> float:
    """Mean |log pi_old - log mu|; what is NaN is left out."""
    difference = message.arrays["old_logprobs"] - message.arrays["sampling_logprobs"]
    return float(torch.from_numpy(difference)[torch.from_numpy(message.arrays["mask"])].abs().nanmean())


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.fault is None])
def test_before_its_onset_a_scenario_is_a_healthy_run_to_the_bit(name: str) -> None:
    for mine, healthy in zip(played(name, 3), played("healthy", 3), strict=True):
        assert mine.envelope == healthy.envelope
        assert all((mine.arrays[key] == healthy.arrays[key]).all() for key in healthy.arrays)


@pytest.mark.parametrize(
    "name",
    ["slow-drift", "spike", "top-p", "temperature", "off-by-one", "nf4-merge", "sync-broken", "collapse"],
)
def test_from_its_onset_on_the_mismatch_is_larger(name: str) -> None:
    gaps = [mismatch(message) for message in played(name, ONSET + 9)]
    assert max(gaps[ONSET:]) > 3 * max(gaps[:ONSET])


def test_a_spike_lasts_one_step_and_comes_back() -> None:
    gaps = [mismatch(message) for message in played("spike", ONSET + 9)]
    usual = max(gaps[:ONSET])
    assert [gap > 3 * usual for gap in gaps[ONSET : ONSET + 6]] == [True, False, False, False, True, False]


def test_a_replica_that_is_stale_is_so_from_the_onset_on() -> None:
    gaps = [(mismatch(message), message.envelope["labels"]["replica"]) for message in played("stale-replica", 14)]
    fresh = max(gap for gap, _ in gaps[:ONSET])
    assert max(gap for gap, replica in gaps[ONSET:] if replica == "1") > 2 * fresh
    assert max(gap for gap, replica in gaps[ONSET:] if replica == "0") < 2 * fresh


def test_the_error_of_a_merge_is_nothing_at_first_and_grows_as_the_policy_learns() -> None:
    gaps = [mismatch(message) for message in played("nf4-merge", 20, sampler="exact", learning_rate=1e-4)]
    assert max(gaps[:ONSET]) == 0.0
    assert 0.0 < gaps[ONSET + 2] < gaps[ONSET + 6] / 1.5
    assert gaps[ONSET + 6] < gaps[-1]


def test_a_cache_in_float8_is_more_noise() -> None:
    gaps = [mismatch(message) for message in played("kv-cache", ONSET + 9)]
    assert max(gaps[ONSET:]) > 2 * max(gaps[:ONSET])


def test_a_sampled_padding_token_parts_the_rest_of_its_answer() -> None:
    parted = []
    for message in played("sampled-padding", ONSET + 12, sampler="exact"):
        there = message.arrays["mask"].astype(bool)
        gap = (message.arrays["old_logprobs"] - message.arrays["sampling_logprobs"])[there]
        parted.append(int((abs(gap) > 1e-4).sum()))
    assert parted[:ONSET] == [0] * ONSET
    assert 0 < max(parted[ONSET:]) < 20


def test_answers_are_cut_after_three_tokens_from_the_onset_on() -> None:
    longest = [
        int(message.arrays["mask"].sum() and max(_answers(message))) for message in played("truncation", ONSET + 2)
    ]
    assert set(longest[ONSET:]) == {3} and min(longest[:ONSET]) > 3


def test_stale_data_is_dropped_from_the_onset_on_and_what_is_left_is_fewer_and_shorter_answers() -> None:
    messages = played("dropped-stale-data", ONSET + 6, sampler="exact", learning_rate=1e-4, slack=6)
    oldest, answers, tokens = [], [], []
    for step, message in enumerate(messages):
        oldest.append(step - int(message.arrays["policy_versions"][message.arrays["mask"]].min()))
        answers.append(len(message.arrays["lengths"]))
        tokens.append(sum(_answers(message)) / answers[-1])
    assert max(oldest[:ONSET]) == 4 and oldest[ONSET:] == [1] * 6
    assert np.mean(answers[ONSET:]) < 0.8 * np.mean(answers[4:ONSET])
    assert np.mean(tokens[ONSET:]) < 0.9 * np.mean(tokens[4:ONSET])
    assert {mismatch(message) for message in messages} == {0.0}


def _answers(message: Message) -> list[int]:
    """How many tokens the engine wrote of each sequence."""
    ends = message.arrays["lengths"].cumsum()
    return [int(part.sum()) for part in np.split(message.arrays["mask"], ends[:-1])]


def test_nan_is_what_the_engine_reports_and_not_what_the_trainer_does() -> None:
    messages = played("nan", ONSET + 4)
    broken = [bool(np.isnan(message.arrays["sampling_logprobs"]).any()) for message in messages]
    assert broken[:ONSET] == [False] * ONSET
    assert any(broken[ONSET:])
    assert not any(np.isnan(message.arrays["old_logprobs"]).any() for message in messages)


def test_all_prompts_are_as_long_as_they_get_from_the_onset_on() -> None:
    messages = played("length-surge", ONSET + 2, top_level=5)
    prompts = [(m.arrays["lengths"].sum() - m.arrays["mask"].sum()) / len(m.arrays["lengths"]) for m in messages]
    assert prompts == [4.0] * ONSET + [6.0] * 2


def test_a_faster_learning_rate_is_more_staleness() -> None:
    def staleness(message: Message) -> float:
        difference = message.arrays["logprobs"] - message.arrays["old_logprobs"]
        return float(abs(difference[message.arrays["mask"]]).mean())

    found = [staleness(message) for message in played("staleness", ONSET + 4, minibatches=2)]
    assert max(found[ONSET:]) > 3 * max(found[:ONSET])


def test_noise_grows_from_the_onset_to_its_end() -> None:
    config = small(scenario="slow-drift", onset=10)
    faults = [config_at(config, step).fault for step in (9, 10, 29, 49, 80)]
    assert faults[0] is None
    strengths = [fault.strength for fault in faults if fault is not None]
    assert strengths == sorted(strengths)
    assert strengths[-1] == pytest.approx(0.4)


def test_a_scenario_is_asked_for_by_name_and_onset_and_not_along_with_a_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    config = config_of(parser.parse_args(["--scenario", "top-p", "--onset", "12"]))
    assert (config.scenario, config.onset, config.fault) == ("top-p", 12, None)
    assert config_at(config, 12).fault == Fault("top_p", 0.9)
    with pytest.raises(SystemExit):
        parser.parse_args(["--scenario", "top-p", "--fault", "int8"])
    assert "not allowed with" in capsys.readouterr().err
