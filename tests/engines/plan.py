"""What is planted in real engines, as data: runs of the demo, the first step with the fault, and its right names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Training steps of a run, and the first with the fault.
STEPS: Final = 32
ONSET: Final = 14
NOISE: Final = ("noise",)


@dataclass(frozen=True)
class Case:
    """One run: what is planted in which engine, the demo's arguments, and the diagnoses that are right.

    `told` is whether an alert is wanted: a healthy run is to be left alone.
    """

    engine: str
    planted: str
    arguments: tuple[str, ...]
    right: tuple[str, ...]
    told: bool = True

    @property
    def run(self) -> str:
        """Name of the run at the service."""
        return f"{self.engine}-{'-'.join(self.arguments).replace('--', '').replace('=', '-') or 'healthy'}"


def fault(name: str) -> tuple[str, ...]:
    """The demo's arguments that plant a fault."""
    return ("--fault", name)


def _both(engine: str) -> Sequence[Case]:
    """What is planted in either engine."""
    return (
        Case(engine, "nothing", (), NOISE, told=False),
        Case(engine, "weight syncs end", ("--scenario", "sync-broken"), ("stale_weights",)),
        Case(engine, "the lm_head is not synced", fault("partial_sync"), ("partial_sync", "stale_weights")),
        Case(engine, "prompts without BOS", fault("prompt"), ("prompt", "first_token")),
        Case(engine, "log-probs one token late", fault("shifted"), ("off_by_one",)),
        Case(engine, "log-probs with 3 decimals", fault("decimal"), ("decimal",)),
    )


CASES: Final = (
    *_both("vllm"),
    Case("vllm", "temperature 0.8", fault("temperature"), ("temperature",)),
    Case("vllm", "top-p 0.9", fault("top_p"), ("top_p",)),
    Case("vllm", "temperature 0.8, raw log-probs", fault("sampling"), ("sampling",)),
    Case("vllm", "one of two engines takes each eighth sync", ("--scenario", "stale-replica"), ("stale_weights",)),
    Case("vllm", "a stale engine for first minibatches alone", fault("early_replica"), ("stale_weights",)),
    Case("vllm", "NF4 merge at each sync", fault("nf4_merge"), ("partial_sync", "stale_weights")),
    Case("vllm", "log-probs of other rows, 1.5 %", fault("garbled"), ("garbled",)),
    Case("vllm", "weights in 8 bits", fault("int8"), NOISE),
    Case("vllm", "KV cache in float8 e4m3", fault("kv_cache"), ("kv_precision", *NOISE)),
    Case("vllm", "KV cache in float8 e4m3, rescored", ("--rescore", *fault("kv_cache")), ("kv_precision", *NOISE)),
    Case("vllm", "nothing, float32", ("--sampler", "exact"), NOISE, told=False),
    Case("vllm", "nothing, another seed", ("--seed", "1"), NOISE, told=False),
    *_both("ct2"),
    Case("ct2", "temperature 0.8, raw log-probs", fault("temperature"), ("sampling",)),
    Case("ct2", "top-p 0.9, raw log-probs", fault("top_p"), ("sampling",)),
    Case("ct2", "float32, then int8", ("--sampler", "exact", *fault("int8")), NOISE),
    Case("ct2", "nothing, rescored", ("--rescore",), NOISE, told=False),
    Case("ct2", "nothing, another seed", ("--seed", "1"), NOISE, told=False),
)
