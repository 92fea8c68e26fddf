"""open-instruct's adapter, driven with functions and trainers that call each other as those of commit e6c3044 do."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.open_instruct import FUNCTIONS, INVALID, documents, watch

from tests.client.adapters.recorder import Recorder
from tests.client.adapters.tokens import of, told

# A packed row of two prompts of two tokens, with answers of three and of two, and two tokens of padding.
TOKENS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
POSITIONS = [0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 0]
ANSWERS = [[2, 3, 4], [7, 8]]
NAMES = ["sampling_logprobs", "old_logprobs", "logprobs", "advantages"]
ALL = SimpleNamespace(num_mini_batches=2, num_epochs=1, use_vllm_logprobs=False, record_entropy=False)


def mask() -> torch.Tensor:
    return torch.tensor([[any(token in answer for answer in ANSWERS) for token in TOKENS]])


def values(name: str) -> torch.Tensor:
    """[1, T] by token."""
    return torch.tensor([of(name, TOKENS)])


def forward_for_logprobs(
    model: Any,
    query_responses: torch.Tensor,
    attention_mask: Any,
    position_ids: torch.Tensor,
    pad_token_id: int,
    temperature: float,
    return_entropy: bool = False,
    pass_olmo_core_doc_lens: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    return model()[:, 1:] * 1.0, torch.ones(1, len(TOKENS) - 1) if return_entropy else None


def compute_rho_correction(
    old_logprob: torch.Tensor, vllm_logprobs: torch.Tensor, response_mask: torch.Tensor, advantages: Any, config: Any
) -> SimpleNamespace:
    return SimpleNamespace(weights=torch.where(response_mask, (old_logprob - vllm_logprobs).exp(), 0.0))


def compute_grpo_loss(
    new_logprobs: torch.Tensor, ratio: torch.Tensor, advantages: Any, ref_logprobs: Any, config: Any, rho_weights: Any
) -> tuple[torch.Tensor, None, None]:
    return -advantages * ratio * rho_weights, None, None


@pytest.fixture(autouse=True)
def functions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """open_instruct.grpo_utils, as a process that imports it has it."""
    module = ModuleType(FUNCTIONS)
    for function in (forward_for_logprobs, compute_rho_correction, compute_grpo_loss):
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, "open_instruct", ModuleType("open_instruct"))
    monkeypatch.setitem(sys.modules, FUNCTIONS, module)
    return module


class Engine:
    """DeepSpeed's: called it scores, and it steps."""

    def __init__(self) -> None:
        self.weight = torch.nn.Parameter(values("logprobs"))
        self.steps = 0

    def __call__(self) -> torch.Tensor:
        return self.weight

    def step(self) -> None:
        self.steps += 1


class Fast:
    """PolicyTrainerRayProcess of grpo_fast.py: one row, split into as many minibatches as it is repeated."""

    def __init__(self, args: Any = ALL, resumed: int = 0) -> None:
        self.args, self.model = args, Engine()
        self._streaming_dataloader = SimpleNamespace(training_step=resumed)
        self.dataloader = iter(())
        self.losses: list[torch.Tensor] = []

    def step(self, mu: torch.Tensor | None = None) -> None:
        utils, args = sys.modules[FUNCTIONS], self.args
        self._streaming_dataloader.training_step += 1
        response, given = mask()[:, 1:], (values("sampling_logprobs") if mu is None else mu)[:, 1:]
        cache: list[Any] = [None] * args.num_mini_batches
        for epoch in range(args.num_epochs):
            for sample in range(args.num_mini_batches):
                forward = (self.model, torch.tensor([TOKENS]), None, torch.tensor([POSITIONS]), 0, 1.0)
                new, _ = utils.forward_for_logprobs(*forward, return_entropy=args.record_entropy)
                new = torch.masked_fill(new, ~response, INVALID)
                vllm = torch.nan_to_num(torch.masked_fill(given, ~response, INVALID), nan=INVALID)
                if args.num_mini_batches > 1:
                    cache[sample] = vllm if args.use_vllm_logprobs else values("old_logprobs")[:, 1:]
                elif epoch == 0:
                    cache[sample] = vllm if args.use_vllm_logprobs else new.detach()
                advantages = values("advantages")[:, 1:]
                rho = utils.compute_rho_correction(cache[sample], vllm, response, advantages, args)
                loss, _, _ = utils.compute_grpo_loss(
                    new_logprobs=new,
                    ratio=(new - cache[sample]).exp(),
                    advantages=advantages,
                    ref_logprobs=None,
                    config=args,
                    rho_weights=rho.weights,
                )
                self.losses.append((loss * response).sum())
                self.model.step()


def with_(**changes: Any) -> Any:
    return SimpleNamespace(**{**vars(ALL), **changes})


@pytest.mark.parametrize("name", NAMES)
def test_every_array_has_the_answers_tokens_under_the_mask(name: str) -> None:
    recorder = Recorder()
    watch(Fast(), recorder).step()
    assert [told(call, name) for call in recorder.calls] == [[of(name, answer) for answer in ANSWERS]] * 2


def test_the_trainer_has_the_losses_that_it_had_unwatched() -> None:
    plain, seen = Fast(), watch(Fast(), Recorder())
    plain.step()
    seen.step()
    assert torch.equal(torch.stack(plain.losses), torch.stack(seen.losses)) and seen.model.steps == 2
    assert torch.autograd.grad(torch.stack(seen.losses).sum(), seen.model.weight)[0].any()


def test_a_call_that_does_not_fit_raises_as_it_did_unwatched(functions: Any) -> None:
    watch(Fast(), Recorder())
    with pytest.raises(TypeError, match="compute_grpo_loss"):
        functions.compute_grpo_loss()


def test_the_steps_are_the_loaders_and_each_has_its_gradient_steps_over_all_epochs() -> None:
    recorder = Recorder()
    trainer = watch(Fast(with_(num_epochs=2), resumed=6), recorder)
    trainer.step()
    trainer.step()
    told = [(call["step"], call["minibatch"], call["policy_version"]) for call in recorder.calls]
    assert told == [(7, m, 6) for m in range(4)] + [(8, m, 7) for m in range(4)]
    assert {(call["shard"], call["shards"]) for call in recorder.calls} == {(0, 1)}


@pytest.mark.parametrize(
    ("changes", "sent"),
    [({"num_mini_batches": 1, "num_epochs": 2}, [False, True]), ({"use_vllm_logprobs": True}, [False, False])],
)
def test_pi_old_is_left_out_where_it_is_another_policy_by_that_name(changes: dict[str, Any], sent: list[bool]) -> None:
    recorder = Recorder()
    watch(Fast(with_(**changes)), recorder).step()
    assert ["old_logprobs" in call for call in recorder.calls] == sent


def test_a_log_prob_that_was_not_a_number_is_none_again() -> None:
    recorder, mu = Recorder(), values("sampling_logprobs")
    mu[0, 3] = float("nan")
    watch(Fast(), recorder).step(mu)
    (first, _) = told(recorder.calls[0], "sampling_logprobs")
    assert first[0] == -2.0 and torch.isnan(torch.tensor(first[1])) and first[2] == -4.0


def test_an_entropy_is_sent_where_it_is_recorded() -> None:
    recorder = Recorder()
    watch(Fast(with_(record_entropy=True)), recorder).step()
    assert told(recorder.calls[0], "entropy") == [[1.0] * 3, [1.0] * 2]


def test_olmo_cores_trial_of_a_made_up_batch_is_not_posted() -> None:
    recorder = Recorder()
    loader, fast = SimpleNamespace(training_step=4), Fast()
    module = SimpleNamespace(_do_optim_step=lambda: None)
    watch(SimpleNamespace(train_module=module, dataloader=loader), recorder)
    fast.step()  # scored, and not stepped on
    loader.training_step = 5
    fast.step()
    module._do_optim_step()
    assert [(call["step"], call["minibatch"], len(call["logprobs"])) for call in recorder.calls] == [(5, 0, 4)]


def test_a_row_is_cut_where_a_prompt_begins_and_not_in_its_padding() -> None:
    assert documents(torch.tensor([POSITIONS])) == [(0, 0, 4), (0, 4, 10)]
    part = torch.tensor([[3, 4, 5, 0, 1], [0, 0, 0, 0, 0]])  # of a row under sequence parallelism; its padding
    assert documents(part) == [(0, 0, 2), (0, 2, 4), (1, 0, 4)]


def test_a_trainer_whose_loss_is_computed_elsewhere_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    trainer = watch(Fast(), Recorder())
    for _ in range(4):
        trainer.model.step()
    assert [record.getMessage().split(" has seen")[0] for record in caplog.records] == [
        "open-instruct's compute_grpo_loss"
    ]


def test_a_change_of_its_arguments_costs_the_figures_and_no_training(
    functions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Lenient(Recorder):
        strict = False

    correct: Callable[..., Any] = functions.compute_rho_correction
    functions.compute_rho_correction = lambda *given: correct(*given)
    recorder = Lenient()
    trainer = watch(Fast(), recorder)
    trainer.step()
    assert recorder.calls == [] and len(trainer.losses) == 2
    assert "posts nothing" in caplog.text
