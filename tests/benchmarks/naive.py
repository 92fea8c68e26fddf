"""The naive service: JSON lists through pydantic into padded tensors, then the padded metrics of all three gaps.

It stores nothing. Run as `python -m tests.benchmarks.naive PORT`.
"""

import sys

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from torch import Tensor

from tests.benchmarks.padded import padded_metrics


class Batch(BaseModel):
    """One shard: a list of numbers for each sequence, padded or not."""

    step: int
    sampling_logprobs: list[list[float]]
    old_logprobs: list[list[float]]
    logprobs: list[list[float]]
    mask: list[list[float]]
    advantages: list[float]


app = FastAPI()


@app.get("/readyz")
def ready() -> dict[str, str]:
    return {"status": "ready"}


@app.post("/batches")
def post(batch: Batch) -> dict[str, dict[str, float]]:
    mask = pad(batch.mask)
    sampling, old, current = pad(batch.sampling_logprobs), pad(batch.old_logprobs), pad(batch.logprobs)
    return {
        "mismatch": padded_metrics(old, sampling, mask),
        "staleness": padded_metrics(current, old, mask),
        "total": padded_metrics(current, sampling, mask),
    }


def pad(rows: list[list[float]]) -> Tensor:
    """[S, L] float32, L the longest row."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False)
