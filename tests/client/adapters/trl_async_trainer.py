"""A real `AsyncGRPOTrainer` over a tiny model: samples come from a queue that is filled here, weights go nowhere.

It is made for GPUs: in the place of its attention, a kernel, stands the same in plain torch, a segment after the other,
and nobody is asked how fast the GPU is.
"""

import itertools
import queue
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AttentionInterface
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
from trl.experimental.async_grpo.packing import TREE_ATTENTION

from tests.client.adapters.tiny import model, tokenizer

PROMPT, ANSWER = 3, 5

async_grpo_trainer.get_peak_flops_per_device = lambda *_: None


def segments(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **tree: Any
) -> tuple[torch.Tensor, None]:
    """Each segment of queries attends, causally, to the keys of its path: what TRL asks FlashAttention 3 for."""
    ends_q, ends_k = tree["tree_cu_seqlens_q"].tolist(), tree["tree_cu_seqlens_k"].tolist()
    out = torch.empty_like(query)
    groups = query.size(1) // key.size(1)
    for (start, end), (first, last) in zip(itertools.pairwise(ends_q), itertools.pairwise(ends_k), strict=True):
        path = tree["tree_kv_index"][first:last]
        keys, values = (side[:, :, path].repeat_interleave(groups, dim=1) for side in (key, value))
        hidden = (
            torch.ones(end - start, last - first, dtype=torch.bool).tril(last - first - (end - start)).logical_not()
        )
        scores = (query[:, :, start:end] @ keys.transpose(-1, -2) * tree["scaling"]).masked_fill(hidden, -torch.inf)
        out[:, :, start:end] = scores.softmax(-1) @ values
    return out.transpose(1, 2), None


class Recording(AsyncGRPOTrainer):
    """Keeps, for each micro-batch, what its loss is computed from."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.seen: list[dict[str, Any]] = []
        super().__init__(*arguments, **named)
        AttentionInterface.register(TREE_ATTENTION, segments)

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
        kept: list[Any] = []
        hook = model.register_forward_hook(lambda _model, _inputs, output: kept.append(output.log_probs.detach()))
        loss = super().compute_loss(model, inputs, *arguments, **named)
        hook.remove()
        real = inputs["token_index"] >= 0
        self.seen.append({
            "log_probs": kept[0].flatten()[inputs["token_index"][real]],
            "old_log_probs": inputs["old_log_probs"][real],
            "segment_id": inputs["segment_id"][real],
            "lag": self.model_version > 1,
        })  # fmt: skip
        return loss


def sample(group: int, version: int, draws: Any = None, advantage: float = 0.0) -> RolloutSample:
    """One answer, with the log-probs that an engine would have returned for it."""
    draws = draws or np.random.default_rng(group)
    mask = np.array([0] * PROMPT + [1, 1, 0, 1, 1], np.int64)
    return RolloutSample(
        prompt=[],
        completion=[],
        input_ids=np.concatenate([np.full(PROMPT, 2 + group % 4), draws.integers(2, 15, ANSWER)]),
        completion_mask=mask,
        old_log_probs=(mask * -draws.uniform(1, 3, PROMPT + ANSWER)).astype(np.float32),
        advantage=advantage,
        model_version=version,
        group_id=group,
        metrics={},
    )


class Worker:
    """Fills the queue at every new version with samples of groups of four; `versions` by the advantage of each."""

    def __init__(self) -> None:
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue()
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self.versions: dict[float, int] = {}
        self.version, self.draws = 0, np.random.default_rng(5)

    def fill(self) -> None:
        for _ in range(12):
            number = len(self.versions)
            self.versions[number / 64] = self.version
            self.rollout_buffer.put(sample(number // 4, self.version, self.draws, number / 64))

    def start(self) -> None:
        self.fill()

    def update_model_version(self, model_version: int) -> None:
        self.version = model_version
        if model_version > 1:
            self.fill()

    def stop(self) -> None:
        """Nothing runs."""

    def check_health(self, stale_after_s: float) -> None:
        raise AssertionError("the trainer waits for samples that nobody makes")


class Weights:
    """Weights that go nowhere."""

    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def send_weights(self, iterator: Any) -> None:
        for _ in iterator:
            pass


def trainer(folder: Path, **arguments: Any) -> Recording:
    """A trainer on the CPU: micro-batches of four samples, unless `arguments` say otherwise."""
    words = tokenizer()
    model(words).save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    defaults: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": 4,
        "token_budget": 0,
        "num_generations": 4,
        "gradient_accumulation_steps": 1,
        "weight_sync_steps": 1,
        "learning_rate": 1e-2,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "dtype": "float32",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
    }
    return Recording(
        model=str(folder / "model"),
        args=AsyncGRPOConfig(**defaults | arguments),
        train_dataset=Dataset.from_dict({"prompt": ["1+1="] * 8}),
        processing_class=words,
        rollout_worker=Worker(),
        weight_transfer=Weights(),
    )
