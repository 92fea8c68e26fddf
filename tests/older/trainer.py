"""A trainer's script: `python trainer.py URL RUN ...` logs the same data in every release.

RUN is a name, or `name:reduced` for a run of which summaries are posted, or `name:reduced:1` for its first step alone.

Ranks that share a step, minibatches in two phases, a log-prob that is missing, a rank that never comes, a step that is
replayed after a restart. It knows numpy and what a `Monitor` of any release can do, and nothing of this repository.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from offpolicy_monitor import Monitor

PROFILE: Final = "moe_bf16"
LABELS: Final = {"cluster": "a"}
LENGTHS: Final = np.array([9, 0, 14, 5])
LOGPROBS: Final = ("sampling_logprobs", "old_logprobs", "logprobs")
#: What the log-probs of one gap are.
FIRST_GAP: Final = LOGPROBS[:2]
PATIENCE: Final = 120.0  # seconds

Logged = dict[str, Any]


def arrays(*seed: int) -> dict[str, Any]:
    """A packed shard with every array of the contract."""
    random, tokens = np.random.default_rng(seed), int(LENGTHS.sum())
    sampling = -0.01 - random.exponential(0.7, tokens)
    old = np.minimum(-0.001, sampling + 0.05 * random.standard_normal(tokens))
    new = np.minimum(-0.001, old + 0.05 * random.standard_normal(tokens))
    found: dict[str, Any] = dict(zip(LOGPROBS, (each.astype(np.float32) for each in (sampling, old, new)), strict=True))
    experts = random.integers(0, 8, (tokens, 2, 2)).astype(np.uint8)
    return found | {
        "lengths": LENGTHS,
        "mask": random.random(tokens) < 0.9,
        "advantages": random.standard_normal(len(LENGTHS)).astype(np.float32),
        "rewards": random.random(len(LENGTHS)).astype(np.float32),
        "group_ids": np.array([0, 0, 1, 1]),
        "policy_versions": np.array([3, 3, 2, 3]),
        "turns": np.arange(tokens) // 4 % 3,
        "entropy": random.random(tokens).astype(np.float32),
        "sampling_experts": experts,
        "experts": np.where(random.random(experts.shape) < 0.1, 7 - experts, experts),
    }


def of_one_gap(*seed: int) -> dict[str, Any]:
    """A shard with the arrays of one gap alone."""
    found = arrays(*seed)
    return {name: found[name] for name in (*FIRST_GAP, "lengths", "mask")}


def two_ranks(step: int) -> Iterable[Logged]:
    """Every array, labels and ids."""
    for rank in range(2):
        ids = [f"prompt-{rank}-{index}" for index in range(len(LENGTHS))]
        about = {"policy_version": 4, "labels": {"engine": f"vllm-{rank}"}, "sequence_ids": ids}
        yield {"step": step, "minibatches": 1, "shard": rank, "shards": 2, **about, **arrays(step, rank)}


def missing_and_stale(step: int) -> Iterable[Logged]:
    """One log-prob is not a number, and the policy is 30 versions ahead."""
    found = of_one_gap(step)
    found["mask"][3], found["old_logprobs"][3] = True, np.nan
    yield {"step": step, "minibatches": 1, "policy_version": 33, **found, "policy_versions": np.array([3, 3, 2, 3])}


def in_phases(step: int) -> Iterable[Logged]:
    """A rollout, then the log-probs of two gradient steps on it."""
    found = {name: value for name, value in arrays(step).items() if name in (*LOGPROBS, "lengths", "mask")}
    later = found.pop("logprobs")
    shared: Logged = {"step": step, "minibatches": 2, "rollout": f"rollout-{step}"}
    yield shared | found
    for minibatch in range(2):
        yield shared | {"minibatch": minibatch, "logprobs": later - np.float32(0.01 * minibatch)}


def incomplete(step: int) -> Iterable[Logged]:
    """One rank of two."""
    yield {"step": step, "minibatches": 1, "shards": 2, **of_one_gap(step)}


def replayed(step: int) -> Iterable[Logged]:
    """The same step with other data."""
    yield {"step": step, "minibatches": 1, "policy_version": 4, **of_one_gap(step, 1)}


#: By attempt, in order: what is logged of each step.
ATTEMPTS: Final = (
    (missing_and_stale, two_ranks, in_phases, incomplete),
    (replayed,),
)


def train(url: str, run: str) -> list[dict[str, Any]]:
    """Log both attempts of a run, shard after shard; answers what became of each attempt's shards."""
    name, *form = run.split(":")
    found = []
    for attempt, steps in enumerate(ATTEMPTS):
        monitor = Monitor(
            url, name, profile=PROFILE, labels=LABELS, attempt=attempt, reduce=bool(form), timeout=PATIENCE
        )
        for step, shards in enumerate(steps[: int(form[1])] if form[1:] else steps):
            for shard in shards(step):
                monitor.log(**shard)
        monitor.flush(PATIENCE)
        monitor.close()
        found.append(dict(monitor.stats))
    return found


if __name__ == "__main__":
    json.dump({run: train(sys.argv[1], run) for run in sys.argv[2:]}, sys.stdout)
