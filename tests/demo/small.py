"""A demo that learns in seconds (three letters of five, two gradient steps per rollout), and what it is answered."""

from importlib import import_module
from typing import Any

from offpolicy_monitor.demo.config import DemoConfig

from tests.fixtures.http_stub import Said

# Which torch imports for the first optimiser, for a second and a half: here it is once for all forks of the tests.
import_module("torch._dynamo")

ANSWER = Said(200, {"gaps": {"mismatch": {"k3": 0.001}, "staleness": {"k3": 0.002}}})


def small(**changes: Any) -> DemoConfig:
    values: dict[str, Any] = {
        "letters": 5,
        "first_level": 3,
        "top_level": 3,
        "slack": 2,
        "prompts": 8,
        "samples": 8,
        "minibatches": 2,
        "learning_rate": 2e-3,
        "width": 32,
    }
    return DemoConfig(**(values | changes))
