from typing import get_args

import pytest
import torch
from offpolicy_monitor.demo.engines.kinds import Precision
from offpolicy_monitor.demo.faults import parse_fault
from offpolicy_monitor.demo.rollout import Rollout
from offpolicy_monitor.demo.task import END, PAD, draw_prompts
from offpolicy_monitor.demo.trainer import Trainer

from tests.demo.small import small


def mismatch(rollouts: list[Rollout]) -> torch.Tensor:
    return torch.cat([(rollout.log_old - rollout.log_mu)[rollout.mask] for rollout in rollouts]).double()


def trained(sampler: Precision, lag: int, steps: int) -> tuple[Trainer, list[Rollout]]:
    """A trainer after some steps, and every rollout on the way."""
    trainer, seen = Trainer(small(sampler=sampler, lag=lag)), []
    for step in range(steps):
        rollouts = trainer.rollouts(step)
        seen += rollouts
        list(trainer.gradient_steps(rollouts, step))
    return trainer, seen


@pytest.mark.parametrize("lag", [0, 1])
def test_the_mismatch_of_the_exact_sampler_is_zero_to_the_bit(lag: int) -> None:
    _, rollouts = trained("exact", lag, steps=5)
    for rollout in rollouts:
        old, mu = rollout.log_old[rollout.mask], rollout.log_mu[rollout.mask]
        assert torch.equal(old.view(torch.int32), mu.view(torch.int32))
    gap = mismatch(rollouts)
    assert len(gap) > 2000
    assert float(gap.abs().max()) == 0.0


@pytest.mark.parametrize("sampler", ["bfloat16", "int8"])
def test_the_mismatch_of_an_engine_is_small_and_not_zero(sampler: Precision) -> None:
    gap = mismatch(trained(sampler, 0, steps=5)[1])
    k3 = float((torch.expm1(gap) - gap).mean())
    assert 1e-7 < k3 < 1e-3
    assert float((gap == 0).double().mean()) < 0.05


def test_the_first_gradient_step_starts_from_the_old_log_probs_to_the_bit() -> None:
    trainer, _ = trained("bfloat16", 0, steps=3)
    first, second = trainer.rollouts(3)
    update = trainer.learner.update(first, 3)
    assert torch.equal(update.log_pi[first.mask], first.log_old[first.mask])
    update = trainer.learner.update(second, 3)
    assert not torch.equal(update.log_pi[second.mask], second.log_old[second.mask])


def halves(rollouts: list[Rollout]) -> tuple[float, float]:
    """Mean d^2 within the engine, from what it sampled with to what it reads, and from there to the trainer."""
    read = torch.cat([r.log_rescored[r.mask] for r in rollouts if r.log_rescored is not None])
    mu, old = (torch.cat([getattr(r, name)[r.mask] for r in rollouts]) for name in ("log_mu", "log_old"))
    assert len(read) == len(mu) > 100
    return tuple(float(((a - b).double() ** 2).mean()) for a, b in ((read, mu), (old, read)))  # pyrefly: ignore[bad-return]


def rescored(sampler: Precision, fault: str | None = None) -> tuple[float, float]:
    planted = None if fault is None else parse_fault(fault)
    return halves(Trainer(small(sampler=sampler, fault=planted, rescored=True)).rollouts(0))


def test_a_sampler_that_reads_whole_rows_anyway_rescores_to_the_bit() -> None:
    assert rescored("exact") == (0.0, 0.0)


def test_a_coarse_cache_is_within_the_engine_and_coarse_weights_are_between_engine_and_trainer() -> None:
    internal, cross = rescored("bfloat16", "kv_cache=3")
    assert internal > 10 * cross > 0
    internal, cross = rescored("bfloat16", "int8=5")
    assert cross > 10 * internal > 0


def test_a_temperature_of_the_engine_is_in_both_of_its_passes() -> None:
    internal, cross = rescored("bfloat16", "temperature=0.8")
    assert cross > 10 * internal


def test_each_of_two_engines_reads_what_it_wrote() -> None:
    trainer = Trainer(small(fault=parse_fault("stale_weights=8"), rescored=True))
    for step in range(3):
        rollouts = trainer.rollouts(step)
        list(trainer.gradient_steps(rollouts, step))
    internal, cross = halves(rollouts)
    assert {rollout.replica for rollout in rollouts} == {0, 1} and cross > 10 * internal


@pytest.mark.parametrize("sampler", get_args(Precision))
def test_an_answer_is_written_up_to_its_end_and_no_further(sampler: Precision) -> None:
    rollouts = Trainer(small(sampler=sampler)).rollouts(0)
    ended = 0
    for rollout in rollouts:
        for tokens, mask, log_mu in zip(rollout.tokens[:, 4:], rollout.mask, rollout.log_mu, strict=True):
            written = int(mask.sum())
            assert written >= 1
            assert mask.tolist() == [True] * written + [False] * (6 - written)
            assert END not in tokens[: written - 1].tolist()
            assert written == 6 or int(tokens[written - 1]) == END
            assert tokens[written:].tolist() == [PAD] * (6 - written)
            assert bool((log_mu[:written] < 0).all())
            ended += written < 6
    assert ended > 0


@pytest.mark.parametrize("sampler", get_args(Precision))
def test_a_sampler_keeps_its_weights_until_it_is_synced(sampler: Precision) -> None:
    trainer = Trainer(small(sampler=sampler))
    rollouts = trainer.rollouts(0)
    prompts = draw_prompts(8, 8, level=3, letters=5, width=4, generator=torch.Generator().manual_seed(2))

    def log_probs() -> torch.Tensor:
        return trainer.sampler.generate(prompts, torch.Generator().manual_seed(3)).log_probs

    before = log_probs()
    list(trainer.gradient_steps(rollouts, 0))
    assert torch.equal(log_probs(), before)
    trainer.sampler.sync(trainer.learner.policy)
    assert not torch.equal(log_probs(), before)
