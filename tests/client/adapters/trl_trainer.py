"""A real `GRPOTrainer` over a tiny model, all built here.

It writes down what it computes its losses from, by its own names, so that a test can compare.
"""

import copy
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tests.client.adapters.tiny import model, tokenizer

PROMPTS = ("1+1=", "2+3=", "4+4=", "7+1=")
#: On the CPU: eight completions a rollout in batches of four, two passes over them.
OPTIONS: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "steps_per_generation": 2,
    "num_generations": 4,
    "num_iterations": 2,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 8,
    "learning_rate": 1e-2,
    "max_steps": 8,
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "save_strategy": "no",
    "logging_strategy": "no",
    "dataloader_pin_memory": False,
}


class RecordingTrainer(GRPOTrainer):
    """Keeps, for each training forward, detached copies of its inputs and of the scores that its loss is made of."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.seen: list[dict[str, Any]] = []
        super().__init__(*arguments, **named)

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        tensors = {name: value.detach().clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        if model.training:
            self.seen.append({"global_step": self.state.global_step, "scored": self.last_scored, **tensors})
        return loss

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        scored = super()._get_per_token_logps_and_entropies(*arguments, **named)
        self.last_scored = [value.detach().clone() for value in scored[:2] if value is not None]
        return scored


class SamplingTrainer(RecordingTrainer):
    """Has sampling log-probs as with vLLM: those of a bfloat16 copy of the policy that generated."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        engine = copy.deepcopy(self.model).to(torch.bfloat16).eval()
        tokens = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        with torch.no_grad():
            logits = engine(input_ids=tokens, attention_mask=mask).logits[:, :-1].float()
        scores = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        output["sampling_per_token_logps"] = scores[:, -output["completion_ids"].size(1) :]
        return output


def reward(completions: list[str], **_: Any) -> list[float]:
    """More for more digits, and never the same for all, so that there are gradients."""
    return [
        sum(character.isdigit() for character in text) / 8 + 0.01 * number for number, text in enumerate(completions)
    ]


def trainer(kind: type[RecordingTrainer], folder: Path, **arguments: Any) -> RecordingTrainer:
    """A trainer of these options, unless `arguments` say otherwise."""
    words = tokenizer()
    return kind(
        model=model(words),
        reward_funcs=reward,
        args=GRPOConfig(output_dir=str(folder), **OPTIONS | arguments),
        train_dataset=Dataset.from_dict({"prompt": list(PROMPTS) * 4}),
        processing_class=words,
    )
