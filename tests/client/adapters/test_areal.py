"""AReaL's adapter, driven with an engine that calls the loss as those of release 1.0.4 do, on data packed as theirs."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.areal import by_token, sources, watch
from offpolicy_monitor.client.adapters.shared.stages import head_of_last, in_stages

from tests.client.adapters.recorder import Poster, Recorder
from tests.client.adapters.tokens import of, told
from tests.fixtures.application import Client

# Two prompts of two tokens; answers of three and of one.
TOKENS = [[0, 1, 2, 3, 4], [10, 11, 12]]
ANSWERS = [[2, 3, 4], [12]]
LENGTH = 5
NAMES = ["sampling_logprobs", "old_logprobs", "logprobs", "advantages", "policy_versions"]


def padded(name: str, prompt: float) -> torch.Tensor:
    """[2, 5] by token, right-padded with 0, as AReaL's rollout has it."""
    rows = [of(name, row) for row in TOKENS]
    return torch.tensor([[prompt] * 2 + row[2:] + [0.0] * (LENGTH - len(row)) for row in rows])


def rolled(array: torch.Tensor) -> torch.Tensor:
    """As AReaL stores what belongs to the next token."""
    return torch.roll(array, shifts=-1, dims=-1)


def packed(rows: slice = slice(None)) -> dict[str, Any]:
    """The input of the loss: arrays [T] of the sequences behind each other, and cu_seqlens."""
    mask = torch.tensor([[float(index >= 2 and index < len(row)) for index in range(LENGTH)] for row in TOKENS])
    arrays = {
        "logprobs": rolled(padded("sampling_logprobs", 0.0)) * rolled(mask),
        "prox_logp": rolled(padded("old_logprobs", -7.0)),
        "pi": rolled(padded("logprobs", -8.0)),
        "advantages": rolled(padded("advantages", 0.0)),
        "loss_mask": rolled(mask),
        "versions": padded("policy_versions", -1.0).int(),
    }
    kept = list(zip(range(2), TOKENS, strict=True))[rows]
    lengths = torch.tensor([len(row) for _, row in kept])
    behind = {name: torch.cat([array[at, : len(row)] for at, row in kept]) for name, array in arrays.items()}
    return {**behind, "cu_seqlens": torch.cat([torch.zeros(1, dtype=torch.int), lengths.cumsum(0).int()])}


class Engine:
    """What the adapter reads of an engine; `train_batch` runs the loss on two micro-batches of one sequence."""

    def __init__(self, decoupled: bool = True, recompute: bool = False, head: bool = True) -> None:
        self.config = SimpleNamespace(use_decoupled_loss=decoupled, recompute_logprob=recompute)
        self.data_parallel_rank, self.data_parallel_world_size = 2, 4
        self.version, self.head = 0, head

    def is_data_parallel_head(self) -> bool:
        return self.head

    def get_version(self) -> int:
        return self.version

    def train_batch(
        self, input_: Any, loss_fn: Callable[..., torch.Tensor], loss_weight_fn: Callable[[Any], torch.Tensor]
    ) -> dict[str, float]:
        losses = []
        for rows in (slice(0, 1), slice(1, 2)):
            data = packed(rows)
            pi = data.pop("pi").requires_grad_()
            extra = {"vocab_min_logits": None, "vocab_max_logits": None}
            losses.append(loss_fn(pi, torch.full_like(pi, 0.5), data, **extra).item() * loss_weight_fn(data).item())
        return {"loss": sum(losses)}


def loss(logprobs: torch.Tensor, entropy: torch.Tensor, data: Any, **more: Any) -> torch.Tensor:
    return -(logprobs * data["advantages"] * data["loss_mask"]).sum()


def train(engine: Engine) -> dict[str, float]:
    """One gradient step, called as the actor calls it."""
    return engine.train_batch(packed(), loss_fn=loss, loss_weight_fn=lambda data: data["loss_mask"].count_nonzero())


@pytest.mark.parametrize("name", NAMES)
def test_every_array_has_the_answers_tokens_under_the_mask(name: str) -> None:
    recorder = Recorder()
    train(watch(Engine(), recorder))
    (call,) = recorder.calls
    assert [len(row) for row in call["mask"]] == [4, 2]
    assert told(call, name) == [of(name, answer) for answer in ANSWERS]


def test_whole_batches_split_at_their_lengths() -> None:
    data = packed()
    rows = by_token({"mask": data["loss_mask"]}, data["cu_seqlens"], data["versions"])
    assert [row.tolist() for row in rows["mask"]] == [[0, 1, 1, 1], [0, 1]]
    assert [row.tolist() for row in rows["policy_versions"]] == [[-1, 102, 103, 104], [-1, 112]]


def test_the_engine_returns_what_it_returned_unwatched() -> None:
    assert train(watch(Engine(), Recorder())) == train(Engine())


def test_versions_are_steps_and_the_gradient_steps_at_one_version_its_minibatches() -> None:
    recorder, engine = Recorder(), Engine()
    watch(engine, recorder)
    for version in (3, 3, 4, 4):
        engine.version = version
        train(engine)
    assert [(call["step"], call["minibatch"], call["policy_version"]) for call in recorder.calls] == [
        (3, 0, 3),
        (3, 1, 3),
        (4, 0, 4),
        (4, 1, 4),
    ]
    assert (recorder.calls[0]["shard"], recorder.calls[0]["shards"]) == (2, 4)


def test_the_mismatch_of_tokens_that_older_weights_sampled_is_marked_in_the_answer(client: Client) -> None:
    poster, engine = Poster(client, "areal"), Engine()
    watch(engine, poster)
    engine.version = 110  # of the tokens one answer was sampled by 102 to 104, the other by 112
    train(engine)
    assert poster.step(110)["mismatch_lag"]["tokens"] == 3


@pytest.mark.parametrize(
    ("decoupled", "recompute", "named"),
    [
        (True, False, {"sampling_logprobs": "logprobs", "old_logprobs": "prox_logp"}),
        (True, True, {"sampling_logprobs": "logprobs", "old_logprobs": "prox_logp"}),
        (False, True, {"old_logprobs": "logprobs"}),
        (False, False, {"sampling_logprobs": "logprobs"}),
    ],
)
def test_log_probs_are_named_by_what_areals_options_make_of_them(
    decoupled: bool, recompute: bool, named: dict[str, str]
) -> None:
    assert sources(SimpleNamespace(use_decoupled_loss=decoupled, recompute_logprob=recompute)) == named
    recorder = Recorder()
    train(watch(Engine(decoupled, recompute), recorder))
    assert recorder.calls[0].keys() & {"sampling_logprobs", "old_logprobs"} == named.keys()


@pytest.mark.parametrize(("head", "told_of"), [(True, 1), (False, 0)])
def test_a_rank_that_should_post_and_never_sees_a_loss_is_told_once(
    head: bool, told_of: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Empty(Engine):
        def train_batch(self, *arguments: Any, **named: Any) -> dict[str, float]:
            return {}

    engine = watch(Empty(head=head), Recorder())
    for _ in range(5):
        train(engine)
    assert [record.getMessage().split(" has seen")[0] for record in caplog.records] == ["AReaL's train_batch"] * told_of


def test_one_rank_of_a_replica_posts() -> None:
    recorder = Recorder()
    train(watch(Engine(head=False), recorder))
    assert recorder.calls == []


@pytest.mark.parametrize(
    ("inference", "temperature", "said"),
    [("RemotevLLMEngine", 0.8, 1), ("RemotevLLMEngine", 1.0, 0), ("RemoteSGLangEngine", 0.8, 0), ("Callback", 0.8, 0)],
)
def test_vllm_whose_log_probs_are_before_the_temperature_is_told_once(
    inference: str, temperature: float, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    engine.config.temperature = temperature
    engine.rollout_engine = type(inference, (), {})()  # pyrefly: ignore[missing-attribute]
    watch(engine, Recorder())
    train(engine)
    train(engine)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == said and all("mu is before it" in line and "actor.temperature=1" in line for line in told)


@pytest.mark.parametrize(
    ("last_stage_on", "posting"),
    [("last", [4]), ("first", [0])],  # in stages one behind the other, or folded so that the first ranks have both ends
)
def test_of_an_archon_pipeline_the_first_rank_that_has_the_last_stage_posts(
    last_stage_on: str, posting: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = [0, 1, 4, 5]  # of 8 ranks: two stages of two tensor-parallel ranks
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", lambda group: replica)
    posted = []
    for rank in replica:
        engine = Engine(head=rank == 0)
        engine.rank, engine.context_and_model_parallel_group = rank, "group"  # pyrefly: ignore[missing-attribute]
        engine.parallel_dims = SimpleNamespace(pp=2)  # pyrefly: ignore[missing-attribute]
        engine.pp_has_last_stage = (rank >= 4) == (last_stage_on == "last")  # pyrefly: ignore[missing-attribute]
        recorder = Recorder()
        train(watch(engine, recorder))
        posted += [rank] * len(recorder.calls)
    assert posted == posting


def at(rank: int, world: int) -> Callable[[], tuple[int, int]]:
    return lambda: (rank, world)


def test_with_a_pipeline_the_first_rank_of_the_last_stage_posts() -> None:
    assert head_of_last([0, 1, 8, 9], stages=2) == 8
    assert head_of_last([4, 5], stages=1) == 4
    places = [in_stages(2, 2, at(rank, 8))() for rank in range(8)]
    assert places == [None, None, None, None, (0, 2), None, (1, 2), None]
    assert [in_stages(1, 1, at(rank, 2))() for rank in range(2)] == [(0, 2), (1, 2)]
    assert in_stages(1, 1, lambda: None)() is None
