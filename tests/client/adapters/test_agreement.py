"""From a framework's own arrays to the service's figures: all of them are those of a float64 loop over the answers.

Two of the adapters with the most to get wrong (padded and shifted, packed and rolled), two ranks, real frames. What
lies outside the answers is far off, so that one position too many or too few would show in every figure.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.client.adapters.areal import watch
from offpolicy_monitor.client.adapters.nemo_rl import watched

from tests.agreement import assert_gap_agrees
from tests.client.adapters.recorder import Poster
from tests.client.adapters.test_areal import Engine
from tests.fixtures.application import Client
from tests.reference import GAPS, Sequence

RANKS, ROWS, PROMPT, LONGEST = 2, 6, 3, 40
COLUMNS = ("sampling_logprobs", "old_logprobs", "logprobs")
FAR_OFF = -30.0


def answers() -> list[Sequence]:
    """Sequences of ranks and rows, the answers alone; log-probs are float32 numbers."""
    random, found = np.random.default_rng(5), []
    for _ in range(RANKS * ROWS):
        length = int(random.integers(1, LONGEST))
        mu = -random.exponential(1.0, length).astype(np.float32)
        old = mu + random.normal(0, 0.05, length).astype(np.float32)
        pi = old + random.normal(0, 0.2, length).astype(np.float32)
        columns = {name: column.tolist() for name, column in zip(COLUMNS, (mu, old, pi), strict=True)}
        found.append(Sequence(columns, [1] * length, float(np.float32(random.normal()))))
    return found


def padded(answers: list[list[float]], outside: float) -> torch.Tensor:
    """[B, S] by token: prompt, answer, padding."""
    rows = torch.full((len(answers), PROMPT + LONGEST), outside)
    for row, answer in zip(rows, answers, strict=True):
        row[PROMPT : PROMPT + len(answer)] = torch.tensor(answer)
    return rows


def by_token(sequences: list[Sequence]) -> dict[str, torch.Tensor]:
    """Every array of some sequences, padded."""
    arrays = {name: padded([one.logprobs[name] for one in sequences], FAR_OFF) for name in COLUMNS}
    arrays["advantages"] = padded([every(one, one.advantage) for one in sequences], 9.0)
    arrays["mask"] = padded([every(one, 1.0) for one in sequences], 0.0)
    arrays["versions"] = padded([every(one, 2.0) for one in sequences], -1.0).int()
    return arrays


def every(one: Sequence, value: Any) -> list[float]:
    """The same value at every position of an answer."""
    return [value] * len(one.mask)


def at(rank: int) -> Callable[[], tuple[int, int]]:
    return lambda: (rank, RANKS)


def through_nemo_rl(poster: Poster, sent: list[Sequence]) -> None:
    """Both ranks, micro-batches of two rows, one optimizer step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    for rank in range(RANKS):
        loss = watched(lambda *_: None, lambda: poster, first_step=3, place=at(rank))
        for first in range(rank * ROWS, (rank + 1) * ROWS, 2):
            arrays = by_token(sent[first : first + 2])
            data = {
                "generation_logprobs": arrays["sampling_logprobs"],
                "prev_logprobs": arrays["old_logprobs"],
                "advantages": arrays["advantages"],
                "token_mask": arrays["mask"],
                "sample_mask": torch.ones(2),
            }
            loss(arrays["logprobs"][:, 1:].requires_grad_(), data)
    optimizer.step()


class OneBatch(Engine):
    """An engine of one rank, whose gradient step is one micro-batch of these sequences."""

    def __init__(self, rank: int, sequences: list[Sequence]) -> None:
        super().__init__()
        self.data_parallel_rank, self.data_parallel_world_size, self.version = rank, RANKS, 3
        self.sequences = sequences

    def train_batch(self, input_: Any, loss_fn: Any, loss_weight_fn: Any) -> dict[str, float]:
        lengths = torch.tensor([PROMPT + len(one.mask) for one in self.sequences])
        arrays = by_token(self.sequences)
        versions = arrays.pop("versions")
        # Rolled in the padded form and then packed, as AReaL does.
        packed = {name: self.pack(torch.roll(array, -1, dims=-1), lengths) for name, array in arrays.items()}
        data = {
            "logprobs": packed["sampling_logprobs"] * packed["mask"],
            "prox_logp": packed["old_logprobs"],
            "advantages": packed["advantages"],
            "loss_mask": packed["mask"],
            "versions": self.pack(versions, lengths),
            "cu_seqlens": torch.cat([torch.zeros(1).int(), lengths.cumsum(0).int()]),
        }
        loss_fn(packed["logprobs"].requires_grad_(), torch.zeros_like(packed["mask"]), data)
        return {}

    def pack(self, array: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.cat([row[: int(length)] for row, length in zip(array, lengths, strict=True)])


def through_areal(poster: Poster, sent: list[Sequence]) -> None:
    """Both ranks, one gradient step."""
    for rank in range(RANKS):
        engine = watch(OneBatch(rank, sent[rank * ROWS : (rank + 1) * ROWS]), poster)
        engine.train_batch(None, lambda *_: None, None)


@pytest.mark.parametrize("through", [through_nemo_rl, through_areal])
def test_the_services_figures_are_those_of_the_answers(
    client: Client, through: Callable[[Poster, list[Sequence]], None]
) -> None:
    poster, sent = Poster(client, "trained"), answers()
    through(poster, sent)
    merged = poster.step(3)
    assert (merged["complete"], merged["received_shards"], merged["minibatch"]) == (True, RANKS, 0)
    assert merged["tokens"] == sum(len(one.mask) for one in sent) and merged["sequences"] == RANKS * ROWS
    for gap in GAPS:
        assert_gap_agrees(merged["gaps"][gap], sent, gap)
