"""The compiled pass over the tokens gives the eager one's figures, and a service without a compiler goes on without."""

import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.core.columns import token_columns
from offpolicy_monitor.core.gap import Derive
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.kernels import FEWEST_TOKENS, compile_columns
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary import StepSummary

from tests.fixtures.tools import require_tool

CPU = torch.device("cpu")

# torch's compiler warns about torch itself when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def compiled() -> Derive:
    """Compiled once for all tests: it takes some ten seconds."""
    require_tool("g++")
    return compile_columns(CPU)


def log_probs(tokens: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(tokens)
    b = -rng.exponential(0.7, tokens).astype(np.float32)
    a = (b + noise * rng.standard_t(3, tokens)).astype(np.float32)
    return torch.from_numpy(a), torch.from_numpy(b)


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.05, 3.0, 40.0])
@pytest.mark.parametrize("tokens", [FEWEST_TOKENS, 20_011])
def test_compiled_columns_are_the_eager_ones(compiled: Derive, tokens: int, noise: float) -> None:
    a, b = log_probs(tokens, noise)
    for got, expected in zip(compiled(a, b), token_columns(a, b), strict=True):
        scale = expected.abs().clamp(min=1e-30)
        assert float(((got - expected).abs() / scale).max()) < 4e-6


def test_identical_policies_stay_exactly_identical_when_compiled(compiled: Derive) -> None:
    a, _ = log_probs(FEWEST_TOKENS, 0.0)
    columns = compiled(a, a.clone())
    for column in (columns.log_ratio, columns.excess, columns.k3, columns.probability_difference):
        assert not bool(column.any())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_was_not_compiled_for_runs_eagerly(compiled: Derive, dtype: torch.dtype) -> None:
    a, b = (column[:100].to(dtype) for column in log_probs(FEWEST_TOKENS, 0.05))
    assert [c.tolist() for c in compiled(a, b)] == [c.tolist() for c in token_columns(a, b)]


def summary_by(measurer: Measurer) -> StepSummary:
    a, b = (column.numpy() for column in log_probs(30_000, 0.05))
    lengths = np.full(30, 1000, np.int64)
    columns = {"sampling_logprobs": b, "old_logprobs": a, "logprobs": a - np.float32(0.01)}
    advantages = np.linspace(-1.0, 1.0, 30, dtype=np.float32)
    return measurer.measure(RaggedBatch.from_positions(lengths, columns, {"advantages": advantages}), PRESETS)


def test_a_measurer_that_compiled_answers_the_same_counts() -> None:
    require_tool("g++")
    measurer, outcomes = Measurer("cpu"), SimpleQueue[Exception | None]()
    before = summary_by(measurer)
    measurer.compile_in_background(outcomes.put)
    assert outcomes.get(timeout=120) is None
    after = summary_by(measurer)
    for name, method in before.methods.items():
        masked = method.sums["masked_tokens"]
        assert after.methods[name].sums["masked_tokens"] == masked, name
    for gap, figures in before.figures()["gaps"].items():
        got = after.figures()["gaps"][gap]
        for name in ("k1", "k3", "js", "ratio_mean", "ess", "probability_diff_mean"):
            assert got[name] == pytest.approx(figures[name], rel=1e-6), (gap, name)


def test_without_a_compiler_the_reason_is_given(tmp_path: Path) -> None:
    script = """
import torch
from offpolicy_monitor.measure.kernels import compile_in_background
compile_in_background(torch.device("cpu"), lambda outcome: print(type(outcome).__mro__)).join()
"""
    variables = os.environ | {"CXX": str(tmp_path / "no-compiler"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and "<class 'Exception'>" in ran.stdout, ran.stderr
