"""The collector beside Megatron's own optimizers and loss scale, which leave a step out whose gradient is not finite.

Megatron makes its few tensors of its own on a GPU: here the same lines make them on the CPU.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from offpolicy_monitor.client.adapters.skyrl import watched
from torch.overrides import TorchFunctionMode


class OnTheCPU(TorchFunctionMode):
    """Tensors that are asked for on "cuda" come on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


@pytest.fixture
def _alone(real: Any, tmp_path: Path) -> Iterator[None]:
    """Megatron's groups of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    parallel = real("megatron.core.parallel_state")
    parallel.initialize_model_parallel()
    yield
    parallel.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def scaled(real: Any, weight: torch.nn.Parameter) -> Any:
    """A mixed-precision optimizer with a dynamic loss scale, whose parameters are their own main parameters."""
    optimizers = real("megatron.core.optimizer.optimizer")
    base: Any = optimizers.MixedPrecisionOptimizer

    class Scaled(base):
        is_stub_optimizer = False

        def zero_grad(self, set_to_none: bool = True) -> None:
            optimizers._zero_grad_group_helper([weight], set_to_none)

        def _collect_main_grad_data_for_unscaling(self) -> list[Any]:
            return [weight.grad]

        def _nothing(self, *arguments: Any) -> None: ...

        _copy_model_grads_to_main_grads = _copy_main_params_to_model_params = _nothing
        load_state_dict = sharded_state_dict = state_dict = _nothing

    scaler = real("megatron.core.optimizer.grad_scaler").DynamicGradScaler(4.0, 1.0, 2.0, 0.5, 1000, 1)
    config = real("megatron.core.optimizer.optimizer_config").OptimizerConfig(fp16=True, clip_grad=0.0, lr=0.5)
    return Scaled(torch.optim.SGD([weight], lr=0.5), config, scaler, lambda *arguments: None)


@pytest.mark.usefixtures("_alone")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chained", [False, True])
def test_a_step_that_the_loss_scale_leaves_out_is_one_of_its_own_and_posted_at_once(
    real: Any, monitor: Any, chained: bool
) -> None:
    weight, factors, weights = torch.nn.Parameter(torch.ones(1)), (1.0, float("inf"), 1.0, float("nan"), 1.0), []
    loss = watched(lambda logprobs, *rest, **named: (logprobs.sum(), {}), lambda: monitor)
    with OnTheCPU():
        optimizer = scaled(real, weight)
        if chained:
            optimizer = real("megatron.core.optimizer.optimizer").ChainedOptimizer([optimizer])
        for index, factor in enumerate(factors):
            optimizer.zero_grad()
            for _ in range(2):
                pi, mu = weight * factor - torch.ones(1, 3), torch.full((1, 3), -float(index))
                optimizer.scale_loss(loss(pi, None, None, None, rollout_logprobs=mu)[0]).backward()
            done, _, _ = optimizer.step()
            weights.append(weight.item())
            assert done is (factor == 1.0) and len(monitor.calls) == index + 1
    assert (weights, optimizer.get_loss_scale().item()) == ([-2.0, -2.0, -5.0, -5.0, -8.0], 1.0)
    assert [call["step"] for call in monitor.calls] == [1, 2, 3, 4, 5]
    told = [[row[0].item() for row in call["sampling_logprobs"]] for call in monitor.calls]
    assert told == [[-float(index)] * 2 for index in range(5)]
