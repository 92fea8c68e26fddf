"""SkyRL's adapter with SkyRL's own policy-loss registry, configuration, batch and callback handler."""

from typing import Any

import torch
from offpolicy_monitor.client.adapters.skyrl import FIELDS, Callback, Ending, watched

# Its own __init__ declares models that pydantic refuses before Python 3.12.
BACKENDS = "skyrl.backends"


def test_a_loss_of_the_registry_is_the_same_and_posts_its_tensors(real: Any, monitor: Any, tokens: Any) -> None:
    losses = real("skyrl.backends.skyrl_train.utils.ppo_utils", bare=BACKENDS)
    configuration = real("skyrl.train.config").AlgorithmConfig
    loss = watched(losses.ppo_policy_loss, lambda: monitor, stands_for="regular")
    losses.PolicyLossRegistry.register("watched", loss)
    shift = torch.nn.Parameter(torch.full((4, 6), 0.125))

    def value(name: str) -> Any:
        return losses.PolicyLossRegistry.get(name)(
            tokens["old_logprobs"] + shift,
            tokens["old_logprobs"],
            tokens["advantages"],
            config=configuration(policy_loss_type=name),
            loss_mask=tokens["mask"].float(),
            rollout_logprobs=tokens["sampling_logprobs"],
        )

    plain, metrics = value("regular")
    (expected,) = torch.autograd.grad(plain, shift)
    seen, told = value("watched")
    seen.backward()
    assert torch.equal(seen, plain) and told == metrics and shift.grad is not None and torch.equal(shift.grad, expected)
    entered = {**tokens, "logprobs": (tokens["old_logprobs"] + shift).detach().clone()}
    torch.optim.SGD([shift]).step()
    (call,) = monitor.calls
    assert (call["step"], call["minibatch"], call["policy_version"]) == (1, 0, 0)
    for name, tensor in entered.items():
        assert torch.equal(torch.stack(call[name]), tensor.to(call[name][0].dtype)), name


def test_the_callback_posts_the_batch_of_a_step_once_among_all_events(real: Any, monitor: Any, tokens: Any) -> None:
    callbacks = real("skyrl.train.utils.callbacks")
    batches = real("skyrl.backends.skyrl_train.training_batch", bare=BACKENDS)
    batch = batches.TrainingInputBatch({FIELDS[name]: tensor for name, tensor in tokens.items()})
    handler = callbacks.CallbackHandler([Callback(monitor), Ending(monitor)])
    told = callbacks.CallbackInput(global_step=9, epoch=0, total_steps=10, steps_per_epoch=10, batch=batch)
    for event in (name for name in dir(callbacks.TrainingCallback) if name.startswith("on_")):
        getattr(handler, event)(None, told, callbacks.TrainingControl())
    (call,) = monitor.calls
    assert (call["step"], call["policy_version"], monitor.ends) == (9, 8, [False, True])
    for name, tensor in tokens.items():
        assert torch.equal(call[name], tensor), name
