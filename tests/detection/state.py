"""What a run is (Run) and what one of its steps is like (State): values alone, healthy ones and faults."""

from dataclasses import dataclass

import numpy as np

from tests.detection.pool import EVEN
from tests.diagnosis.model import Array


@dataclass(frozen=True)
class Run:
    """What stays the same: sequences per step, shards, whether they are labelled engines, and the noise of the profile.

    uneven: factor of the noise on 12 % of the tokens, as where a router flips; diverse: sequences differ by a factor of
    this many e; broad: the lengths' log-normal deviation; method: the preset in use; routed: expert ids are sent;
    rescored: so are `engine_logprobs`.
    """

    profile: str = "dense_bf16"
    sequences: int = 16
    shards: int = 1
    labelled: bool = False
    noise: str = EVEN
    uneven: float = 1.0
    diverse: float = 0.0
    broad: float = 0.7
    method: str | None = None
    routed: bool = False
    rescored: bool = False


@dataclass(frozen=True)
class State:
    """What a step is like. The first six change as a healthy run learns; the others are faults.

    scale: noise of the engine's logits; drift: noise between pi_old and the policy of the last gradient step; length:
    mean tokens; certain: share of the sequences with a fifth of the entropy; lag: largest version lag; agreement: share
    of experts in common. stale: noise of one of the engines; temperature and nucleus of the sampler; shifted, broken:
    share of sequences off by one, and of tokens that are NaN; copied: pi_old is mu; flat: logits far below the largest,
    flattened by this; uneven: instead of the run's; solved: share of the prompts that are rewarded; cap:
    tokens that answers are cut at, 0 for none; learned: how much likelier rewarded answers are to the trainer than to
    the engine, and others less, as a share of |d|;
    moved: probability that the policy has moved to tokens that the engine never draws, in the mean of all tokens;
    decode: noise of the logits that the engine decodes with, beside those of its own prefill;
    drawn: temperature of the draw alone, which the reported log-probs do not have;
    oldest: lag beyond which the trainer drops sequences, of which long ones are old since they take long; None: none.
    """

    scale: float = 0.02
    drift: float = 0.005
    length: float = 125.0
    certain: float = 0.0
    lag: int = 2
    agreement: float = 0.93
    stale: float = 0.0
    temperature: float = 1.0
    drawn: float = 1.0
    nucleus: float = 1.0
    shifted: float = 0.0
    broken: float = 0.0
    copied: bool = False
    flat: float = 0.0
    uneven: float | None = None
    solved: float = 0.5
    learned: float = 0.0
    moved: float = 0.0
    decode: float = 0.0
    oldest: int | None = None
    cap: int = 0


def shard_of(run: Run) -> Array:
    """[S] the shard of each sequence."""
    return np.asarray(np.arange(run.sequences) * run.shards // run.sequences)
