"""Faults of the demo: how they are asked for, and that each is planted where it is said to be."""

import math
from functools import cache

import pytest
import torch
from offpolicy_monitor.demo.engines.kinds import Precision
from offpolicy_monitor.demo.faults import KINDS, Fault, parse_fault
from offpolicy_monitor.demo.planted import at_temperature, recompute, reported, with_bits, within_nucleus
from offpolicy_monitor.demo.policy import answer_distribution
from offpolicy_monitor.demo.rollout import Rollout
from offpolicy_monitor.demo.sampler import make_sampler
from offpolicy_monitor.demo.scenarios import config_at
from offpolicy_monitor.demo.task import Prompts, draw_prompts
from offpolicy_monitor.demo.trainer import Trainer

from tests.demo.small import small


def test_a_fault_has_its_usual_strength_or_the_one_given() -> None:
    assert parse_fault("top_p") == Fault("top_p", 0.9)
    assert parse_fault("top_p=0.5") == Fault("top_p", 0.5)
    assert [parse_fault(name).strength for name in KINDS] == [kind.usual for kind in KINDS.values()]


@pytest.mark.parametrize(
    ("text", "says"), [("gremlins", "is no fault: temperature,"), ("top_p=2", "0.1 to 1: 2"), ("int8=x", "a number")]
)
def test_what_is_no_fault_is_refused_with_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_fault(text)


def test_a_temperature_divides_logits() -> None:
    log_probs = torch.tensor([[0.5, 0.25, 0.25]]).log()
    expected = torch.tensor([[0.25, 0.0625, 0.0625]]) / 0.375
    assert torch.allclose(at_temperature(log_probs, 0.5).exp(), expected)


def test_a_nucleus_is_the_fewest_tokens_that_reach_p() -> None:
    log_probs = torch.tensor([[0.2, 0.5, 0.3]]).log()
    assert torch.allclose(within_nucleus(log_probs, 0.8).exp(), torch.tensor([[0.0, 0.625, 0.375]]))
    assert torch.allclose(within_nucleus(log_probs, 0.81).exp(), torch.tensor([[0.2, 0.5, 0.3]]))


def test_eight_bits_are_those_of_bfloat16() -> None:
    values = -torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 9
    assert torch.equal(with_bits(values, 8), values.bfloat16().float())
    assert math.isinf(with_bits(torch.tensor([-math.inf]), 8).item())


def test_an_answer_cut_out_early_begins_with_the_prompts_last_token() -> None:
    trainer = Trainer(small(sampler="exact"))
    rollout = trainer.rollouts(0)[0]
    policy = trainer.learner.policy
    with torch.no_grad():
        right, _ = recompute(None, policy, rollout.tokens, rollout.starts)
        wrong, _ = recompute(Fault("off_by_one", 0.5), policy, rollout.tokens, rollout.starts)
        distribution = answer_distribution(policy, rollout.tokens, rollout.starts)
    assert torch.equal(wrong[:32, 1:], right[:32, :-1])
    assert not torch.equal(wrong[:32, 0], distribution[:32, 0].gather(-1, rollout.tokens[:32, 4:5])[:, 0])
    assert torch.equal(wrong[32:], right[32:])


def test_late_log_probs_are_those_of_the_token_before_and_the_first_is_nothing() -> None:
    log_probs = torch.tensor([[-1.0, -2.0, -3.0]] * 4)
    late = reported(Fault("shifted", 1.0), log_probs, torch.Generator())
    assert late.tolist() == [[0.0, -1.0, -2.0]] * 4
    some = reported(Fault("shifted", 0.5), log_probs.repeat(50, 1), torch.Generator().manual_seed(0))
    assert 60 < int((some[:, 0] == 0).sum()) < 140


@pytest.mark.parametrize("sampler", ["bfloat16", "exact"])
def test_an_engine_that_does_not_see_a_prompts_first_token_answers_the_shorter_prompt(sampler: Precision) -> None:
    trainer = Trainer(small(sampler=sampler, fault=Fault("prompt", 1)))
    whole = draw_prompts(8, 1, 3, 5, 4, torch.Generator().manual_seed(0))
    cut = Prompts(whole.tokens, whole.starts + 1)
    seen, shorter = (
        make_sampler(sampler, trainer.learner.policy, fault).generate(prompts, torch.Generator().manual_seed(1))
        for fault, prompts in ((Fault("prompt", 1), whole), (None, cut))
    )
    assert torch.equal(seen.tokens, shorter.tokens) and torch.equal(seen.log_probs, shorter.log_probs)


def test_a_fault_is_there_from_its_step_on() -> None:
    config = small(fault=Fault("top_p", 0.9), fault_from=3)
    assert [config_at(config, step).fault for step in (0, 2, 3, 9)] == [None, None, config.fault, config.fault]


@cache
def dropping(oldest: float, steps: int, **changes: object) -> list[list[Rollout]]:
    """The rollouts of each training step of a trainer that drops what is older."""
    trainer, seen = Trainer(small(sampler="exact", prompts=4, fault=Fault("dropped_stale", oldest), **changes)), []
    for step in range(steps):
        seen.append(trainer.rollouts(step))
        list(trainer.gradient_steps(seen[-1], step))
    return seen


def ages(rollouts: list[Rollout], step: int) -> set[int]:
    return {step - version for rollout in rollouts for version in rollout.versions.tolist()}


def test_a_long_answer_is_done_training_steps_later_and_an_old_one_is_dropped() -> None:
    kept, young = dropping(100, 8), dropping(1, 8)
    assert [max(ages(rollouts, step)) for step, rollouts in enumerate(kept)] == [0, 1, 2, 2, 2, 2, 2, 2]
    assert [max(ages(rollouts, step)) for step, rollouts in enumerate(young)] == [0, 1, 1, 1, 1, 1, 1, 1]
    short = [int(rollout.mask[rollout.versions == step].sum(1).max()) for step in (6, 7) for rollout in kept[step]]
    assert max(short) < 7 and all(bool((rollout.mask.sum(1) > 4).all()) for rollout in _of_age(kept, 2))


def _of_age(seen: list[list[Rollout]], age: int) -> list[Rollout]:
    return [rollout.rows(rollout.versions == step - age) for step, rollouts in enumerate(seen) for rollout in rollouts]


def test_every_answer_is_trained_on_once_unless_it_is_dropped() -> None:
    seen = dropping(100, 8)
    begun_first = [int((rollout.versions == 0).sum()) for rollouts in seen for rollout in rollouts]
    assert sum(begun_first) == 2 * 32
    together = [rollout for rollouts in seen for rollout in rollouts]
    rewards = torch.cat([rollout.rewards[rollout.versions == 0] for rollout in together])
    groups = torch.cat([rollout.groups[rollout.versions == 0] for rollout in together])
    assert groups.bincount().tolist() == [8] * 8
    centred = torch.cat([rollout.advantages[rollout.versions == 0] for rollout in together])
    for group in range(8):
        mine = rewards[groups == group]
        expected = (mine - mine.mean()) / (mine.std(correction=0) + 1e-4)
        assert torch.allclose(centred[groups == group], expected, atol=1e-4)


def test_data_that_was_dropped_leaves_no_mismatch_and_smaller_blocks() -> None:
    kept, young = dropping(100, 8), dropping(0, 8)
    assert all(torch.equal(r.log_old[r.mask], r.log_mu[r.mask]) for rollouts in young for r in rollouts)
    answers = [[len(rollout.rewards) for rollouts in seen[4:] for rollout in rollouts] for seen in (kept, young)]
    assert sum(answers[1]) < 0.7 * sum(answers[0])
    assert all(abs(first - second) <= 1 for first, second in zip(answers[1][::2], answers[1][1::2], strict=True))


def test_a_trainer_that_would_drop_everything_waits_for_what_is_young() -> None:
    for step, rollouts in enumerate(dropping(0, 3, lag=1)):
        assert ages(rollouts, step) == {0}


def test_an_early_replica_samples_first_minibatches_alone() -> None:
    trainer = Trainer(small(sampler="exact", fault=Fault("early_replica", 3)))
    for step in range(3):
        rollouts = trainer.rollouts(step)
        assert [rollout.replica for rollout in rollouts] == [1] + [0] * (len(rollouts) - 1)
        same = [torch.equal(rollout.log_old[rollout.mask], rollout.log_mu[rollout.mask]) for rollout in rollouts]
        assert same == [step == 0] + [True] * (len(rollouts) - 1)
        list(trainer.gradient_steps(rollouts, step))


def test_replicas_take_turns_and_one_of_them_keeps_old_weights() -> None:
    trainer = Trainer(small(sampler="exact", fault=Fault("stale_weights", 3)))
    gaps: dict[int, list[bool]] = {0: [], 1: []}
    begins = []
    for step in range(4):
        rollouts = trainer.rollouts(step)
        begins.append(rollouts[0].replica)
        for rollout in rollouts:
            assert rollout.replica is not None
            gaps[rollout.replica].append(torch.equal(rollout.log_old[rollout.mask], rollout.log_mu[rollout.mask]))
        for message in trainer.gradient_steps(rollouts, step):
            assert message.envelope["labels"]["replica"] in {"0", "1"}
    assert begins == [0, 1, 0, 1]
    assert gaps == {0: [True] * 4, 1: [True, False, False, True]}
