"""The collector: which rows belong to which gradient step, with real optimizers."""

import gc
import logging

import pytest
import torch
from offpolicy_monitor import Monitor
from offpolicy_monitor.client.adapters.shared.collector import Collector

from tests.client.adapters.recorder import Recorder
from tests.client.fakes import Fake, serving


def optimizer(rate: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=rate)


def add(collector: Collector, value: float, sequences: int = 1) -> None:
    """One micro-batch, whose log-probs name it."""
    collector.add({"logprobs": [torch.full((3,), value) for _ in range(sequences)]})


def posted(recorder: Recorder) -> list[tuple[int, int, list[float]]]:
    """Of each shard: its step, its minibatch, and which micro-batches are in it."""
    return [(call["step"], call["minibatch"], [float(row[0]) for row in call["logprobs"]]) for call in recorder.calls]


def test_a_gradient_step_is_posted_when_the_optimizer_steps_under_its_number() -> None:
    recorder, stepping = Recorder(), optimizer()
    collector = Collector(recorder, first_step=5, minibatches=2, first_minibatch=1)
    for value, sequences in ((-1.0, 2), (-2.0, 1), (-3.0, 1)):
        add(collector, value, sequences)
        add(collector, value)
        stepping.step()
    stepping.step()
    assert posted(recorder) == [(5, 1, [-1.0] * 3), (5, 2, [-2.0] * 2), (6, 1, [-3.0] * 2)]
    assert [call["minibatches"] for call in recorder.calls] == [3, 3, 3]
    assert [call["policy_version"] for call in recorder.calls] == [4, 4, 5]


def test_a_rank_without_a_place_posts_nothing() -> None:
    recorder = Recorder()
    collector = Collector(recorder, place=lambda: None)
    add(collector, -1.0)
    collector.post()
    assert recorder.calls == []


@pytest.mark.parametrize("clears", ["before the forward", "after the step"])
def test_a_skipped_step_is_one_of_its_own_and_shifts_none_behind_it(clears: str) -> None:
    recorder, stepping = Recorder(), optimizer()
    collector = Collector(recorder, first_step=1)
    for value in (-1.0, -2.0, -3.0):
        if clears == "before the forward":
            stepping.zero_grad()
        for _ in range(2):
            add(collector, value)
        finite = value != -2.0
        if finite:
            stepping.step()
        if clears == "after the step" or not finite:
            stepping.zero_grad()
    assert posted(recorder) == [(1, 0, [-1.0] * 2), (2, 0, [-2.0] * 2), (3, 0, [-3.0] * 2)]


@pytest.mark.parametrize(("clears", "steps"), [(True, [4, 5]), (False, [4])], ids=["skipped", "broken off"])
def test_at_the_end_of_a_run_a_step_that_was_skipped_is_posted_and_one_that_was_broken_off_is_not(
    clears: bool, steps: list[int]
) -> None:
    fake, stepping = Fake(), optimizer()
    with serving(fake), Monitor(fake.url, "r", attempt=0) as monitor:
        collector = Collector(monitor, first_step=4)
        for finite in (True, False):
            collector.add({name: [torch.zeros(3)] for name in ("old_logprobs", "logprobs")})
            if finite:
                stepping.step()
        if clears:
            stepping.zero_grad()
    assert fake.steps() == steps
    assert fake.asked[-1].method == "PATCH"


def test_a_shard_of_the_end_is_under_the_rank_that_its_process_had_in_training() -> None:
    recorder, stepping, ranks = Recorder(), optimizer(), [(3, 4), (0, 1)]
    collector = Collector(recorder, place=lambda: ranks[0])
    add(collector, -1.0)
    stepping.zero_grad()
    ranks.pop(0)
    for _ in range(2):
        recorder.finish()
    assert [(call["step"], call["shard"], call["shards"]) for call in recorder.calls] == [(0, 3, 4)]


def test_a_gradient_scaler_that_finds_an_overflow_shifts_no_step() -> None:
    recorder, weight = Recorder(), torch.nn.Parameter(torch.ones(1))
    stepping, scaler = torch.optim.SGD([weight]), torch.amp.GradScaler("cpu", init_scale=4.0)
    collector = Collector(recorder)
    for value, factor in ((-1.0, 1.0), (-2.0, float("inf")), (-3.0, 1.0)):
        stepping.zero_grad()
        add(collector, value)
        torch.autograd.backward(scaler.scale((weight * factor).sum()))
        scaler.step(stepping)
        scaler.update()
    assert posted(recorder) == [(0, 0, [-1.0]), (1, 0, [-2.0]), (2, 0, [-3.0])]


def test_gradients_cleared_between_forward_and_backward_end_no_step() -> None:
    recorder, stepping = Recorder(), optimizer()
    collector = Collector(recorder)
    for value in (-1.0, -2.0):
        add(collector, value)
        stepping.zero_grad()
        stepping.step()
    assert posted(recorder) == [(0, 0, [-1.0]), (1, 0, [-2.0])]


def test_the_word_of_the_framework_goes_before_what_optimizers_do() -> None:
    recorder, stepping = Recorder(), optimizer()
    collector = Collector(recorder, minibatches=2)
    for step, minibatch, steps in ((7, 0, True), (7, 1, False), (9, 0, True), (9, 1, True)):
        for _ in range(2):
            collector.at(step, minibatch)
            add(collector, -step - minibatch / 2)
        if steps:
            stepping.step()
    expected = [(7, 0, [-7.0] * 2), (7, 1, [-7.5] * 2), (9, 0, [-9.0] * 2), (9, 1, [-9.5] * 2)]
    assert posted(recorder) == expected


def test_a_framework_that_says_the_step_alone_has_its_gradient_steps_counted_within_it() -> None:
    recorder, stepping = Recorder(), optimizer()
    collector = Collector(recorder, minibatches=2)
    for step, values in ((4, (-1.0, -2.0)), (5, (-3.0,)), (8, (-4.0, -5.0, -6.0))):
        for value in values:
            collector.at(step)
            add(collector, value)
            stepping.step()
    assert [shard[:2] for shard in posted(recorder)] == [(4, 0), (4, 1), (5, 0), (8, 0), (8, 1), (8, 2)]
    assert [call["minibatches"] for call in recorder.calls] == [2, 2, 2, 2, 2, 3]


def test_where_gradients_are_cleared_once_a_step_that_ends_it_however_the_optimizer_stepped() -> None:
    recorder, stepping = Recorder(), optimizer()
    collector = Collector(recorder, first_step=1, by_clearing=True)
    for value, sequences, steps in ((0.0, 0, 1), (-2.0, 2, 1), (-3.0, 1, 0), (0.0, 0, 3), (-5.0, 2, 3), (-6.0, 1, 1)):
        if sequences:
            add(collector, value, sequences)
        for _ in range(steps):
            stepping.step()
        stepping.zero_grad()
    assert posted(recorder) == [(2, 0, [-2.0] * 2), (3, 0, [-3.0]), (5, 0, [-5.0] * 2), (6, 0, [-6.0])]


@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)], ids=["number", "tensor"])
def test_the_step_by_which_torch_prepares_the_state_for_a_checkpoint_is_none(rate: float) -> None:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model, recorder = torch.nn.Linear(1, 1), Recorder()
    adam = torch.optim.AdamW(model.parameters(), lr=rate)
    collector = Collector(recorder, first_step=8, by_clearing=True)
    get_optimizer_state_dict(model, adam)
    add(collector, -8.0)
    adam.step()
    adam.zero_grad()
    assert posted(recorder) == [(8, 0, [-8.0])]


def test_rows_that_no_step_ends_are_let_go_with_one_warning_and_the_next_step_is_posted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder, stepping = Recorder(), optimizer()
    collector = Collector(recorder, most=8)
    with caplog.at_level(logging.WARNING, "offpolicy_monitor"):
        for _ in range(50):
            add(collector, -1.0)
            assert sum(len(row) for row in collector.rows.get("logprobs", [])) <= 8
        stepping.step()
        add(collector, -2.0, sequences=2)
        stepping.step()
    assert posted(recorder) == [(1, 0, [-2.0] * 2)]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("9 values on one rank and no end of the gradient step")


def test_a_collector_that_nobody_holds_hears_nothing_more() -> None:
    recorder, stepping = Recorder(), optimizer()
    collector = Collector(recorder)
    add(collector, -1.0)
    del collector
    gc.collect()
    stepping.step()
    assert recorder.calls == []


def test_an_optimizer_that_is_listened_to_clears_its_gradients_as_ever() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    stepping, collector = torch.optim.SGD([weight]), Collector(Recorder())
    collector.listen()
    weight.grad = torch.ones(1)
    stepping.zero_grad(set_to_none=False)
    assert weight.grad.tolist() == [0.0]
    stepping.zero_grad()
    assert weight.grad is None
