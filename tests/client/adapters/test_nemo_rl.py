"""NeMo-RL's adapter, driven with batches and losses of the shapes of release 0.7.0."""

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.nemo_rl import arrays, next_step, watched

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# Two prompts of two tokens; answers are the tokens 2, 3, 4 and 12, 13, and the second row is padded.
TOKENS = [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
ANSWERS = [[2, 3, 4], [12, 13]]
POSTED: list[Recorder] = []


def batch(*names: str) -> dict[str, torch.Tensor]:
    """A batch [2, 5] as the workers get it: position t holds what belongs to token t, the prompt's log-probs are 0."""
    values = {
        "generation_logprobs": "sampling_logprobs",
        "prev_logprobs": "old_logprobs",
        "advantages": "advantages",
    }
    data = {key: torch.tensor([of(name, row) for row in TOKENS]) for key, name in values.items()}
    data["generation_logprobs"][:, :2] = 0.0
    data["token_mask"] = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]])
    data["sample_mask"] = torch.tensor([1.0, 1.0])
    return data


def next_token_logprobs() -> torch.Tensor:
    """Log-probs [2, 4] of the tokens 1 to 4 of each row, as a worker computes them from logits."""
    return torch.tensor([of("logprobs", row[1:]) for row in TOKENS])


class Loss:
    """A loss with the call and some of the attributes of ClippedPGLossFn."""

    loss_type, input_type, force_on_policy_ratio = "token_level", "logprob", False

    def __call__(
        self, next_token_logprobs: torch.Tensor, data: Any, global_valid_seqs: Any, global_valid_toks: Any
    ) -> tuple[torch.Tensor, dict[str, float]]:
        mask = data["token_mask"][:, 1:]
        return -(next_token_logprobs * mask).sum() / global_valid_toks, {"tokens": float(mask.sum())}


def make() -> Recorder:
    POSTED.append(Recorder())
    return POSTED[-1]


def call(loss: Any, logprobs: torch.Tensor | None = None, data: dict[str, torch.Tensor] | None = None) -> Any:
    """As NeMo-RL's wrappers call it: everything by name."""
    return loss(
        data=data or batch(),
        global_valid_seqs=torch.tensor(2),
        global_valid_toks=torch.tensor(5),
        next_token_logprobs=next_token_logprobs() if logprobs is None else logprobs,
    )


@pytest.mark.parametrize("name", ["sampling_logprobs", "old_logprobs", "logprobs", "advantages"])
def test_every_array_has_the_answers_tokens_under_the_mask(name: str) -> None:
    assert told(arrays(next_token_logprobs(), batch()), name) == [of(name, answer) for answer in ANSWERS]


def test_a_sample_that_is_masked_out_is_an_empty_sequence() -> None:
    data = batch() | {"sample_mask": torch.tensor([0.0, 1.0])}
    sent = arrays(next_token_logprobs(), data)
    assert sent["mask"].tolist() == [[False] * 4, [False, True, True, False]]
    assert told(sent, "logprobs") == [of("logprobs", ANSWERS[1])]


def test_zeros_in_place_of_pi_old_are_not_sent() -> None:
    assert "old_logprobs" not in arrays(next_token_logprobs(), batch(), recomputed=False)


def test_the_watched_loss_is_the_loss_in_results_and_attributes() -> None:
    loss = watched(Loss(), Recorder)
    plain, seen = call(Loss()), call(loss)
    assert (seen[0].item(), seen[1]) == (plain[0].item(), plain[1])
    assert (loss.loss_type, loss.input_type) == ("token_level", "logprob")
    assert not hasattr(loss, "use_fused_linear_logprobs")


def test_a_loss_pickled_before_every_step_counts_gradient_steps_on_with_one_monitor() -> None:
    POSTED.clear()
    sent = pickle.dumps(watched(Loss(), make, minibatches=2, first_step=8))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    for _ in range(2):
        arrived = pickle.loads(sent)
        for _ in range(2):
            for row in (0, 1):  # two micro-batches per gradient step
                data = {key: value[row : row + 1] for key, value in batch().items()}
                call(arrived, next_token_logprobs()[row : row + 1], data)
            optimizer.step()
    assert len(POSTED) == 1
    calls = POSTED[0].calls
    assert [(sent["step"], sent["minibatch"], sent["minibatches"]) for sent in calls] == [
        (8, 0, 2),
        (8, 1, 2),
        (9, 0, 2),
        (9, 1, 2),
    ]
    assert [sent["policy_version"] for sent in calls] == [7, 7, 8, 8]
    assert [told(sent, "old_logprobs") for sent in calls] == [[of("old_logprobs", answer) for answer in ANSWERS]] * 4


def test_sequences_of_a_packed_batch_come_one_by_one_and_are_rows_of_one_shard() -> None:
    recorder = Recorder()
    loss = watched(Loss(), lambda: recorder)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    for row, length in ((0, 5), (1, 4)):  # without padding, as NeMo-RL's wrapper for packed sequences cuts them
        data = {key: value[row : row + 1, :length] for key, value in batch().items() if value.ndim == 2}
        call(loss, next_token_logprobs()[row : row + 1, : length - 1], data | {"sample_mask": torch.ones(1)})
    optimizer.step()
    (sent,) = recorder.calls
    assert [len(row) for row in sent["mask"]] == [4, 3]
    assert told(sent, "logprobs") == [of("logprobs", answer) for answer in ANSWERS]


def test_a_monitor_that_cannot_be_made_does_not_end_the_run() -> None:
    def broken() -> Recorder:
        raise ValueError("no address")

    assert call(watched(Loss(), broken))[1] == {"tokens": 5.0}


@pytest.mark.parametrize(
    ("recomputed", "named"),
    [(True, ["logprobs", "old_logprobs", "sampling_logprobs"]), (False, ["logprobs", "sampling_logprobs"])],
)
def test_a_forced_ratio_sends_pi_old_where_an_error_threshold_has_it_recomputed(
    recomputed: bool, named: list[str]
) -> None:
    recorder, data = Recorder(), batch()
    if not recomputed:
        data["prev_logprobs"] = torch.zeros_like(data["prev_logprobs"])
    loss = watched(SimpleLoss(), lambda: recorder)
    call(loss, data=data | {"sample_mask": torch.zeros(2)})  # tells nothing: no token is under the mask
    call(loss, data=data)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
    assert {len(rows) for rows in recorder.calls[0].values() if isinstance(rows, list)} == {2}
    assert sorted(recorder.calls[0].keys() & {"sampling_logprobs", "old_logprobs", "logprobs"}) == named


@pytest.mark.parametrize(
    ("generation", "said"),
    [
        ({"backend": "vllm", "temperature": 0.7, "vllm_cfg": {"logprobs_mode": "raw_logprobs"}}, 1),
        ({"backend": "vllm", "temperature": 0.7, "vllm_cfg": {}}, 1),  # vLLM's own default
        ({"backend": "vllm", "temperature": 0.7, "vllm_cfg": {"logprobs_mode": "processed_logprobs"}}, 0),
        ({"backend": "vllm", "temperature": 1.0, "vllm_cfg": {"logprobs_mode": "raw_logprobs"}}, 0),
        ({"backend": "megatron", "temperature": 0.7}, 0),
        (None, 0),  # of another form: a warning of its own, and no error
    ],
)
def test_raw_log_probs_beside_logits_divided_by_the_temperature_are_told(
    generation: dict[str, Any] | None, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    for config in ({"policy": {"generation": generation}}, SimpleNamespace(policy={"generation": generation})):
        caplog.clear()
        watched(Loss(), make, config=config)
        told = [record.getMessage() for record in caplog.records]
        assert sum("logprobs_mode=processed_logprobs" in line for line in told) == said


def test_the_next_step_is_read_off_either_form_of_the_saved_state() -> None:
    assert next_step({"total_steps": 12, "epoch": 1}) == 13
    assert next_step(SimpleNamespace(total_steps=12)) == 13


class SimpleLoss(SimpleNamespace):
    """A loss under `force_on_policy_ratio`."""

    force_on_policy_ratio = True

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """No result."""
