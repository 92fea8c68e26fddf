"""ms-swift's own command, which trains a tiny model on the CPU; transformers samples in the place of vLLM."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

PROMPTS = ("1+1=", "2+3=", "4+4=", "7+1=")
# ms-swift tells special tokens from text by a letter.
CHARACTERS = "0123456789+=. a"
OPTIONS = """
    --rlhf_type grpo --model_type qwen2 --template dummy --tuner_type full --torch_dtype float32 --use_cpu true
    --callbacks ask offpolicy --reward_funcs digits --num_generations 4 --per_device_train_batch_size 4
    --steps_per_generation 2 --num_iterations 2 --gradient_accumulation_steps 1 --max_completion_length 8 --max_steps 6
    --learning_rate 1e-2 --temperature 1 --log_entropy true --save_strategy no --report_to none --max_length 64
    --dataloader_num_workers 0 --dataset_num_proc 1 --check_model false --split_dataset_ratio 0
"""
# The lines of the page, but for the monitor; rewards; and the switch that use_vllm turns on.
PLUGIN = """
import sys
from offpolicy_monitor.client.adapters.ms_swift import callback
from swift.callbacks import TrainerCallback, callbacks_map
from swift.rewards import ORM, orms

class Ask(TrainerCallback):
    def on_train_begin(self, *arguments, **named):
        self.trainer.request_config.logprobs = True
        given = sys.modules["given_by_the_test"]
        compute = self.trainer._compute_loss_and_metrics
        def keeping(model, model_inputs, grpo_batch):
            given.seen.append(grpo_batch)
            return compute(model, model_inputs, grpo_batch)
        self.trainer._compute_loss_and_metrics = keeping

class Digits(ORM):
    def __call__(self, completions, **_):
        return [sum(map(str.isdigit, text)) / 8 + 0.01 * number for number, text in enumerate(completions)]

orms["digits"] = Digits
callbacks_map["ask"] = Ask
callbacks_map["offpolicy"] = callback(lambda: sys.modules["given_by_the_test"].monitor)
"""


@pytest.mark.filterwarnings("ignore")
def test_a_run_posts_all_three_log_probs_of_each_gradient_step_once(
    real: Any, monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny, seen = real("tests.client.adapters.tiny"), list[Any]()
    words = tiny.tokenizer(CHARACTERS)
    words.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    words.save_pretrained(tmp_path / "model")
    tiny.model(words).save_pretrained(tmp_path / "model")
    rows = [json.dumps({"messages": [{"role": "user", "content": prompt}]}) for prompt in PROMPTS * 4]
    (tmp_path / "data.jsonl").write_text("\n".join(rows))
    (tmp_path / "plugin.py").write_text(PLUGIN)
    given: Any = SimpleNamespace(monitor=monitor, seen=seen)
    monkeypatch.setitem(real("sys").modules, "given_by_the_test", given)
    places = {"model": "model", "dataset": "data.jsonl", "external_plugins": "plugin.py", "output_dir": "out"}
    named = [word for option, name in places.items() for word in (f"--{option}", str(tmp_path / name))]
    real("swift.pipelines").rlhf_main([*OPTIONS.split(), *named])

    keys = [[call[name] for name in ("step", "minibatch", "shard", "shards")] for call in monitor.calls]
    assert keys == [[0, 0, 0, 1], [0, 1, 0, 1], [0, 2, 0, 1], [0, 3, 0, 1], [4, 0, 0, 1], [4, 1, 0, 1]]
    assert [call["policy_version"] for call in monitor.calls] == [0, 0, 0, 0, 1, 1]
    assert monitor.ends == [False]
    for call, batch in zip(monitor.calls, seen, strict=True):
        mask = torch.stack(call["mask"])
        assert torch.equal(mask, batch.completion_mask) and mask.any()
        assert torch.equal(torch.stack(call["sampling_logprobs"]), batch.rollout_per_token_logps)
        assert torch.equal(torch.stack(call["old_logprobs"]), batch.old_per_token_logps)
        assert torch.equal(torch.stack(call["advantages"]), batch.advantages)
        assert (torch.stack(call["entropy"])[mask] >= 0).all()
    drift = [_largest(call, "logprobs", "old_logprobs") for call in monitor.calls]
    assert drift[0] == drift[4] == 0 and min(drift[1:4]) > 1e-3
    assert _largest(monitor.calls[0], "old_logprobs", "sampling_logprobs") < 1e-5


def _largest(call: dict[str, Any], upper: str, lower: str) -> float:
    """The largest difference of two log-probs over completion tokens."""
    pairs = zip(call[upper], call[lower], call["mask"], strict=True)
    return max(float((one - other)[mask].abs().max()) for one, other, mask in pairs)
