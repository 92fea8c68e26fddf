"""Real engines as the demo uses them, with an engine that is a Llama itself in the place of one that is installed."""

from collections.abc import Sequence

import pytest
import torch
from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.engines.backend import RealEngines
from offpolicy_monitor.demo.engines.engine import Checkpoint, Options, Request, Written
from offpolicy_monitor.demo.engines.kinds import ENGINES, EngineKind
from offpolicy_monitor.demo.engines.llama import Llama
from offpolicy_monitor.demo.engines.sampler import HEAD, padded
from offpolicy_monitor.demo.faults import KINDS, Fault, parse_fault
from offpolicy_monitor.demo.message import Message
from offpolicy_monitor.demo.policy import Policy
from offpolicy_monitor.demo.task import END, FIRST_LETTER
from offpolicy_monitor.demo.trainer import Trainer

from tests.demo.small import small

BOS = FIRST_LETTER + 5
MATRIX = "model.layers.0.mlp.up_proj.weight"


class Plain:
    """Computes by a Llama of its own, without a cache, and remembers what it was asked."""

    def __init__(self, policy: Policy, options: Options) -> None:
        self.policy, self.options = Llama(policy.shape, torch.Generator()), options
        self.generator = torch.Generator().manual_seed(options.seed)
        self.loaded: list[Checkpoint] = []
        self.asked: list[Sequence[int]] = []

    def load(self, checkpoint: Checkpoint) -> None:
        self.loaded.append(checkpoint)
        self.policy.model.load_state_dict(checkpoint)

    @torch.no_grad()
    def write(self, prompts: Sequence[Sequence[int]], request: Request) -> list[Written]:
        self.asked += prompts
        return [self._one(list(prompt), request) for prompt in prompts]

    @torch.no_grad()
    def read(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> list[Sequence[float]]:
        found = []
        for prompt, answer in zip(prompts, answers, strict=True):
            logits = self.policy(torch.tensor([[*prompt, *answer]]), torch.zeros(1, dtype=torch.int64))[0]
            known = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(-1, torch.tensor(answer)[:, None])
            found.append(known[:, 0].tolist())
        return found

    def _one(self, row: list[int], request: Request) -> Written:
        begun, log_probs = len(row), list[float]()
        while len(log_probs) < request.most and (not log_probs or row[-1] != request.end):
            logits = self.policy(torch.tensor([row]), torch.zeros(1, dtype=torch.int64))[0, -1]
            known = (logits if self.options.raw else logits / request.temperature).log_softmax(-1)
            row.append(int(torch.multinomial((logits / request.temperature).softmax(-1), 1, generator=self.generator)))
            log_probs.append(float(known[row[-1]]))
        return Written(row[begun:], log_probs)


class Run:
    """A short run with such engines."""

    def __init__(self, fault: str | None = None, steps: int = 2, **changes: object) -> None:
        planted = parse_fault(fault) if fault else None
        config = small(engine="vllm", fault=planted, prompts=2, samples=2, layers=1, **changes)
        self.engines: list[Plain] = []
        self.trainer = Trainer(config, RealEngines(self.open))
        self.messages: list[Message] = []
        for step in range(steps):
            self.messages += self.trainer.gradient_steps(self.trainer.rollouts(step), step)

    def open(self, policy: Policy, options: Options) -> Plain:
        self.engines.append(Plain(policy, options))
        return self.engines[-1]

    def gaps(self) -> list[float]:
        """The largest |log pi_old - log mu| of each message."""
        found = []
        for message in self.messages:
            mask, gap = message.arrays["mask"], message.arrays["old_logprobs"] - message.arrays["sampling_logprobs"]
            found.append(float(abs(gap[mask]).max()))
        return found


@pytest.fixture(scope="module")
def healthy() -> Run:
    return Run()


def test_an_engine_is_opened_once_and_takes_the_weights_of_every_step(healthy: Run) -> None:
    [engine] = healthy.engines
    assert engine.options == Options("bfloat16", seed=0)
    assert len(engine.loaded) == 2
    assert not torch.equal(engine.loaded[0][MATRIX], engine.loaded[1][MATRIX])


def test_an_engine_that_computes_as_the_trainer_does_has_no_mismatch_but_of_rounding(healthy: Run) -> None:
    assert max(healthy.gaps()) < 1e-5
    labels = {tuple(message.envelope["labels"].items()) for message in healthy.messages}
    assert labels == {(("engine", "vllm"), ("precision", "bfloat16"))}


def test_prompts_begin_with_bos_unless_that_is_what_is_planted(healthy: Run) -> None:
    assert {prompt[0] for prompt in healthy.engines[0].asked} == {BOS}
    blind = Run("prompt", steps=1)
    assert all(BOS not in prompt for prompt in blind.engines[0].asked)
    assert min(blind.gaps()) > 1e-2


def test_a_head_that_is_not_synced_is_that_of_the_first_step() -> None:
    run = Run("partial_sync", steps=3)
    first, *_, last = run.engines[0].loaded
    assert torch.equal(first[HEAD], last[HEAD])
    assert not torch.equal(first[MATRIX], last[MATRIX])
    assert max(run.gaps()[:1]) < 1e-5 < 1e-3 < max(run.gaps()[-2:])


def test_weights_in_bits_have_so_many_levels_and_the_head_stays_whole() -> None:
    run = Run("int8=4", steps=1)
    [loaded], learned = run.engines[0].loaded, Run(steps=0).trainer.learner.policy
    assert isinstance(learned, Llama)
    assert max(len(row.unique()) for row in loaded[MATRIX]) <= 15
    assert torch.equal(loaded[HEAD], learned.checkpoint()[HEAD])


def test_a_merge_into_nf4_is_exact_at_first_and_rounds_what_is_learned() -> None:
    run = Run("nf4_merge", steps=3)
    gaps = run.gaps()
    assert gaps[0] < 1e-5 < 1e-4 < gaps[-1]


def test_one_of_two_engines_misses_syncs() -> None:
    run = Run("stale_weights=2", steps=3)
    assert [len(engine.loaded) for engine in run.engines] == [3, 2]


def test_a_temperature_is_asked_of_the_engine_and_raw_log_probs_do_not_show_it() -> None:
    processed, raw = Run("temperature=0.5", steps=1), Run("sampling=0.5", steps=1)
    assert min(processed.gaps()) > 0.1
    assert max(raw.gaps()) < 1e-5
    assert [engine.options.raw for engine in raw.engines] == [True]


@pytest.mark.parametrize("fault", [None, "prompt", "stale_weights=2"])
def test_an_engine_reads_its_answers_after_the_prompts_that_it_saw(fault: str | None) -> None:
    arrays = [message.arrays for message in Run(fault, steps=2, rescored=True).messages]
    for sent in arrays:
        gap = sent["engine_logprobs"] - sent["sampling_logprobs"]
        assert float(abs(gap[sent["mask"]]).max()) < 1e-5


def test_what_is_sampled_at_a_temperature_is_not_rescored_since_what_an_engine_reads_is_raw() -> None:
    assert all("engine_logprobs" not in m.arrays for m in Run("temperature=0.5", steps=1, rescored=True).messages)


def test_what_an_engine_is_opened_with_is_opened_when_the_fault_begins() -> None:
    run = Run("kv_cache=3", steps=3, fault_from=2)
    assert [(engine.options.cache_bits, len(engine.loaded)) for engine in run.engines] == [(None, 2), (3, 1)]


def test_log_probs_are_rounded_as_asked() -> None:
    for message in Run("quantised=8", steps=1).messages:
        sent = torch.from_numpy(message.arrays["sampling_logprobs"])
        assert torch.equal(sent, sent.bfloat16().float())


def test_int8_is_the_engines_own_where_it_has_one() -> None:
    opened = []

    def open_engine(policy: Policy, options: Options) -> Plain:
        opened.append(options.precision)
        return Plain(policy, options)

    for name in ("vllm", "ct2"):
        config = DemoConfig(engine=name, sampler="exact", fault=Fault("int8", 8))
        RealEngines(open_engine).sampler(config, Run(steps=0).trainer.learner.policy)
    assert opened == ["exact", "int8"]


def test_answers_of_different_lengths_are_padded() -> None:
    samples = padded([Written([4, END], [-0.5, -1.0]), Written([5, 6, 7], [-1.0, -2.0, -3.0])], 4)
    assert samples.tokens.tolist() == [[4, END, 0, 0], [5, 6, 7, 0]]
    assert samples.log_probs.tolist() == [[-0.5, -1.0, 0.0, 0.0], [-1.0, -2.0, -3.0, 0.0]]
    assert samples.mask.sum(1).tolist() == [2, 3]


def test_padding_before_a_prompt_changes_nothing_of_what_a_llama_says() -> None:
    policy = Run(steps=0).trainer.learner.policy
    row = [BOS, 4, 5, 6, 1, 3]
    alone = policy(torch.tensor([row]), torch.tensor([0]))[0]
    padded_row = policy(torch.tensor([[0, 0, *row]]), torch.tensor([2]))[0, 2:]
    assert torch.allclose(alone, padded_row, atol=1e-5)


@pytest.mark.parametrize("kind", ENGINES.values(), ids=ENGINES)
def test_what_an_engine_can_have_are_faults_of_the_demo(kind: EngineKind) -> None:
    assert set(kind.faults) < set(KINDS)
