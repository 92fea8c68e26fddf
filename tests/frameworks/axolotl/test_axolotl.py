"""axolotl's own trainer on a tiny model, watched by its plugin; a copy in bfloat16 samples in the place of vLLM."""

import copy
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

os.environ |= {"HF_HUB_OFFLINE": "1", "AXOLOTL_DO_NOT_TRACK": "1"}

# The lines of the page, but for the monitor.
PLUGIN = """
import sys
from axolotl.integrations.base import BasePlugin
from offpolicy_monitor.client.adapters.trl import watch


class Offpolicy(BasePlugin):
    def post_trainer_create(self, cfg, trainer):
        watch(trainer, sys.modules["given_by_the_test"].monitor)
"""


def sampled(trainer: Any) -> Any:
    """The class of a trainer whose rollouts have mu, from a copy of the model in bfloat16."""

    class Sampled(trainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            engine = copy.deepcopy(self.model).to(torch.bfloat16).eval()
            tokens = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
            mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
            with torch.no_grad():
                scores = engine(input_ids=tokens, attention_mask=mask).logits[:, :-1].float().log_softmax(-1)
            every = scores.gather(-1, tokens[:, 1:, None]).squeeze(-1)
            batch["sampling_per_token_logps"] = every[:, -batch["completion_ids"].size(1) :]
            return batch

    return Sampled


@pytest.mark.filterwarnings("ignore")
def test_a_plugin_posts_all_three_log_probs_of_each_gradient_step_once(
    real: Any, monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "given_by_the_test", SimpleNamespace(monitor=monitor))
    (tmp_path / "offpolicy.py").write_text(PLUGIN)
    grpo, tiny = real("axolotl.core.trainers.grpo.trainer"), real("tests.client.adapters.tiny")
    data, task = real("datasets"), real("tests.client.adapters.trl_trainer")
    words = tiny.tokenizer()
    trainer = sampled(grpo.AxolotlGRPOTrainer)(
        model=tiny.model(words),
        reward_funcs=task.reward,
        args=real("axolotl.core.trainers.grpo.args").AxolotlGRPOConfig(
            output_dir=str(tmp_path / "out"), **task.OPTIONS | {"max_steps": 6}
        ),
        train_dataset=data.Dataset.from_dict({"prompt": list(task.PROMPTS) * 4}),
        processing_class=words,
    )
    plugins = real("axolotl.integrations.base").PluginManager.get_instance()
    plugins.register("offpolicy.Offpolicy")
    plugins.post_trainer_create(None, trainer)
    trainer.train()

    keys = [[call[name] for name in ("step", "minibatch", "policy_version", "shard")] for call in monitor.calls]
    assert keys == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0], [0, 3, 0, 0], [4, 0, 1, 0], [4, 1, 1, 0]]
    assert monitor.ends == [False]
    noise = [_largest(call, "old_logprobs", "sampling_logprobs") for call in monitor.calls]
    assert all(0 < one < 0.1 for one in noise)
    drift = [_largest(call, "logprobs", "old_logprobs") for call in monitor.calls]
    assert max(drift[0], drift[4]) < 1e-5 and min(drift[1:4]) > 1e-3


def _largest(call: dict[str, Any], upper: str, lower: str) -> float:
    """The largest difference of two log-probs over completion tokens."""
    return float(((call[upper] - call[lower]) * call["mask"]).abs().max())
