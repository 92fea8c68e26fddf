"""Dumps as the frameworks write them, of one made-up step: the same three sequences in every layout."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from offpolicy_monitor.wire.frame import encode

LENGTHS = (4, 2, 3)
PROMPT = 2  # tokens before each answer, outside the mask


def answers(step: int) -> list[dict[str, list[float]]]:
    """Per sequence the log-probs of engine and trainer and the advantages, exact in float32."""
    made = []
    for index, length in enumerate(LENGTHS):
        base = -np.arange(1, length + 1, dtype=np.float32) / 8
        drift = np.float32((step + 1) * (index + 1)) / 64
        made.append(
            {"mu": base.tolist(), "old": (base - drift).tolist(), "advantages": [float(index - 1)] * length},
        )
    return made


def padded(values: Sequence[Any], filler: Any, width: int | None = None) -> list[Any]:
    row = [filler] * PROMPT + list(values)
    return row + [filler] * ((width or len(row)) - len(row))


def prime_rl_record(step: int, rank: int, index: int, answer: dict[str, list[float]]) -> dict[str, Any]:
    length = PROMPT + len(answer["mu"])
    nothing = [None] * length
    return {
        "schema_version": 1, "step": step, "rank": rank, "micro_step": 0, "micro_sequence_idx": index,
        "export_sequence_idx": index, "env_name": "math", "token_ids": list(range(length)),
        "position_ids": list(range(length)), "loss_mask": padded([True] * len(answer["mu"]), False),
        "advantages": padded(answer["advantages"], 0.0), "inference_logprobs": padded(answer["mu"], 0.0),
        "trainer_logprobs": padded(answer["old"], -1.5), "entropy": [0.5] * length, "mismatch_kl": nothing,
        "importance_ratio": nothing, "is_masked": nothing, "rl_weights": nothing, "ce_weights": nothing,
        "ref_kl_weights": nothing,
    }  # fmt: skip


def write_prime_rl(root: Path, step: int, stable: bool = True, torn: bool = False) -> Path:
    """Two ranks: the first has two sequences, the second (rank 10) one."""
    folder = root / f"step_{step}"
    folder.mkdir(parents=True, exist_ok=True)
    made = answers(step)
    for rank, part in ((2, made[:2]), (10, made[2:])):
        text = "".join(json.dumps(prime_rl_record(step, rank, i, a)) + "\n" for i, a in enumerate(part))
        (folder / f"rank_{rank}.jsonl").write_text(text[:-30] if torn else text)
    if stable:
        (folder / "STABLE").touch()
    return folder


def write_nemo_rl(root: Path, step: int) -> Path:
    width, lines = PROMPT + max(LENGTHS) + 1, []
    for index, answer in enumerate(answers(step)):
        length = len(answer["mu"])
        sample = {
            "content": ["text"], "rewards": [float(index)], "input_lengths": [PROMPT + length],
            "token_ids": [[7] * width], "token_loss_mask": [padded([1.0] * length, 0.0, width)],
            "sample_loss_mask": [1.0], "advantages": [padded(answer["advantages"], 0.0, width)],
            "generation_logprobs": [padded(answer["mu"], 0.0, width)],
            "prev_logprobs": [padded(answer["old"], -2.0, width)], "idx": index,
        }  # fmt: skip
        lines.append(json.dumps(sample) + "\n")
    path = root / f"train_data_step{step}.jsonl"
    path.write_text("".join(lines))
    return path


def slime_columns(step: int) -> dict[str, list[Any]]:
    made = answers(step)
    return {
        "response_lengths": list(LENGTHS), "sample_indices": [0, 1, 2],
        "loss_masks": [torch.ones(n, dtype=torch.int) for n in LENGTHS], "rewards": [0.0, 1.0, 2.0],
        "rollout_log_probs": [torch.tensor(a["mu"]) for a in made], "log_probs": [torch.tensor(a["old"]) for a in made],
        "advantages": [torch.tensor(a["advantages"]) for a in made],
    }  # fmt: skip


def write_slime(root: Path, step: int) -> Path:
    """One file per rollout, as `--save-debug-train-data` writes it."""
    columns = slime_columns(step)
    indices = columns.pop("sample_indices")
    samples = [
        {"data_parallel_rank": 0, "sample_index": indices[i], **{name: column[i] for name, column in columns.items()}}
        for i in range(len(LENGTHS))
    ]
    path = root / "train_data" / f"{step}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"format_version": 2, "rollout_id": step, "rank": 0, "samples": samples, "dp_shards": []}, path)
    return path


def write_slime_by_rank(root: Path, step: int) -> list[Path]:
    """One file per rank, as slime 0.3.1 writes them: rank 0 lacks the trainer's log-probs, 1 and 2 share a sample."""
    columns, paths = slime_columns(step), []
    parts = {0: [0, 1, 2], 1: [0, 1], 2: [1, 2]}
    for rank, indices in parts.items():
        data = {name: [column[i] for i in indices] for name, column in columns.items()}
        if rank == 0:
            del data["log_probs"]
        paths.append(root / f"{step}_{rank}.pt")
        torch.save({"rollout_id": step, "rank": rank, "rollout_data": data}, paths[-1])
    return paths


def body(step: int, current: str = "old_logprobs") -> dict[str, Any]:
    """The same step as the JSON body of a post by hand."""
    made = answers(step)
    return {
        "step": step, "sampling_logprobs": [a["mu"] for a in made], current: [a["old"] for a in made],
        "advantages": [a["advantages"] for a in made],
    }  # fmt: skip


def write_jsonl(path: Path, steps: Sequence[int]) -> Path:
    with path.open("a") as file:
        for step in steps:
            file.write(json.dumps(body(step)) + "\n")
    return path


def write_frame(root: Path, step: int) -> Path:
    made = answers(step)
    arrays = {
        "sampling_logprobs": np.concatenate([a["mu"] for a in made]).astype(np.float32),
        "old_logprobs": np.concatenate([a["old"] for a in made]).astype(np.float32),
        "advantages": np.concatenate([a["advantages"] for a in made]).astype(np.float32),
        "lengths": np.array(LENGTHS),
    }
    path = root / f"batch-{step}.safetensors"
    path.write_bytes(b"".join(encode({"step": step}, arrays)))
    return path
