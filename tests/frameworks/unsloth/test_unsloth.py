"""The trainer that Unsloth writes out of TRL's, on a tiny model, posts pi and pi_old out of its compiled loss.

mu needs vLLM, so there is none here.
"""

import os
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def written(real: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """TRL once Unsloth has put its own trainer into it, which it writes into the folder that it runs in."""
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HUB_OFFLINE", "UNSLOTH_DISABLE_STATISTICS", "UNSLOTH_COMPILE_DISABLE", "UNSLOTH_ALLOW_CPU"):
        monkeypatch.setenv(name, "1")
    # Prefixes that answers share are scored once for pi_old, and on a CPU not as pi is.
    monkeypatch.setenv("UNSLOTH_GRPO_PREFIX_GROUPER", "0")
    real("unsloth")
    # It is allowed to be imported without a GPU, and then behaves as if there were one.
    os.environ["UNSLOTH_ALLOW_CPU"] = "0"
    real("unsloth.models.rl").PatchFastRL("GRPO")
    return real("trl")


@pytest.mark.filterwarnings("ignore")
def test_pi_and_pi_old_of_each_gradient_step_are_posted_once(written: Any, real: Any, monitor: Any) -> None:
    tiny, task = real("tests.client.adapters.tiny"), real("tests.client.adapters.trl_trainer")
    assert "Unsloth" in written.GRPOTrainer.__name__
    words = tiny.tokenizer()
    model = tiny.model(words)
    model.for_training, model.for_inference = (lambda **_: model.train()), (lambda **_: model.eval())
    trainer = written.GRPOTrainer(
        model=model,
        reward_funcs=task.reward,
        args=written.GRPOConfig(output_dir="out", **task.OPTIONS | {"max_steps": 6, "optim": "adamw_torch"}),
        train_dataset=real("datasets").Dataset.from_dict({"prompt": list(task.PROMPTS) * 4}),
        processing_class=words,
    )
    real("offpolicy_monitor.client.adapters.unsloth").watch(trainer, monitor)
    trainer.train()

    keys = [[call[name] for name in ("step", "minibatch", "policy_version", "shard")] for call in monitor.calls]
    assert keys == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0], [0, 3, 0, 0], [4, 0, 1, 0], [4, 1, 1, 0]]
    assert monitor.ends == [False]
    assert all("sampling_logprobs" not in call and call["mask"].any(1).all() for call in monitor.calls)
    drift = [_largest(call) for call in monitor.calls]
    # The same weights in another pass, and weights that were trained since.
    assert max(drift[0], drift[4]) < 5e-3 and min(drift[2], drift[3], drift[5]) > 0.05


def _largest(call: dict[str, Any]) -> float:
    """The largest difference of pi and pi_old over completion tokens."""
    return float(((call["logprobs"] - call["old_logprobs"]) * call["mask"]).abs().max())
