"""SkyRL's adapter with SkyRL's own policy-loss registry, configuration, batch and callback handler."""

import ast
from pathlib import Path
from typing import Any

import pytest
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


def test_the_fully_asynchronous_trainer_refuses_callbacks_and_takes_a_loss_by_a_name_that_it_does_not_know(
    real: Any, monitor: Any, tokens: Any
) -> None:
    losses = real("skyrl.backends.skyrl_train.utils.ppo_utils", bare=BACKENDS)
    configuration = real("skyrl.train.config").AlgorithmConfig
    with pytest.raises(NotImplementedError, match="Callbacks are not yet supported"):
        method_of(real("skyrl.train"), "fully_async_trainer.py", "FullyAsyncRayPPOTrainer", "add_callback")(None, None)
    assert "watched_async" not in losses.LOSSES_WITH_OLD_LOGPROBS  # which it asserts
    registry = losses.PolicyLossRegistry
    plain = registry.get("rollout_is")
    registry.register("watched_async", watched(plain, lambda: monitor, stands_for="rollout_is"))
    shift = torch.nn.Parameter(torch.full((4, 6), 0.125))

    def value(name: str) -> Any:
        config = configuration(policy_loss_type=name)
        given = {"loss_mask": tokens["mask"].float(), "rollout_logprobs": tokens["sampling_logprobs"], "config": config}
        return registry.get(name)(tokens["old_logprobs"] + shift, tokens["old_logprobs"], tokens["advantages"], **given)

    (expected,) = torch.autograd.grad(value("rollout_is")[0], shift)
    seen, told = value("watched_async")
    seen.backward()
    assert torch.equal(seen, value("rollout_is")[0]) and told == value("rollout_is")[1]
    assert shift.grad is not None and torch.equal(shift.grad, expected)
    torch.optim.SGD([shift]).step()
    (call,) = monitor.calls
    assert torch.equal(torch.stack(call["sampling_logprobs"]), tokens["sampling_logprobs"])


def method_of(package: Any, file: str, owner: str, name: str) -> Any:
    """A method out of a module that cannot be imported here, since it needs the inference client's libraries."""
    tree = ast.parse((Path(next(iter(package.__path__))) / file).read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    (method,) = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == name]
    namespace: dict[str, Any] = {}
    exec(compile(ast.Module([method], []), file, "exec"), namespace)
    return namespace[name]
