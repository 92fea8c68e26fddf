"""The compiled pass over the tokens gives the eager one's figures."""

from pathlib import Path

import numpy as np
import pytest
import torch
from offpolicy_monitor.core.columns import token_columns
from offpolicy_monitor.core.gap import Derive
from offpolicy_monitor.measure.kernels import FEWEST_TOKENS, GAPS

from tests.fixtures.kernels import compiled_columns

CPU = torch.device("cpu")
#: A CPU's compiled expm1 is exp - 1, which in float64 leaves an error of 2e-16.
LEAST = 1e-10


@pytest.fixture
def compiled(warm: Path, monkeypatch: pytest.MonkeyPatch) -> Derive:
    """The compiled form, loaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm))
    return compiled_columns(CPU)


def log_probs(tokens: int, noise: float) -> torch.Tensor:
    rng = np.random.default_rng(tokens)
    b = -rng.exponential(0.7, (GAPS, tokens)).astype(np.float32)
    a = (b + noise * rng.standard_t(3, (GAPS, tokens))).astype(np.float32)
    return torch.from_numpy(np.stack([a, b]))


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.05, 3.0, 40.0])
@pytest.mark.parametrize("tokens", [FEWEST_TOKENS, 20_011])
def test_compiled_columns_are_the_eager_ones(compiled: Derive, tokens: int, noise: float) -> None:
    sides = log_probs(tokens, noise)
    for got, expected in zip(compiled(sides), token_columns(sides), strict=True):
        scale = expected.abs().clamp(min=LEAST)
        assert float(((got - expected).abs() / scale).max()) < 4e-6


def test_columns_in_strides_and_columns_of_other_shapes_are_left_to_torch(compiled: Derive) -> None:
    sides = log_probs(2 * FEWEST_TOKENS, 0.05)
    for got, expected in zip(compiled(sides[..., ::2]), token_columns(sides[..., ::2]), strict=True):
        assert torch.equal(got, expected)
    with pytest.raises(ValueError, match="sides has shape"):
        compiled(sides[:1])


def test_identical_policies_stay_exactly_identical_when_compiled(compiled: Derive) -> None:
    columns = compiled(log_probs(FEWEST_TOKENS, 0.0)[:1].repeat(2, 1, 1))
    for column in (columns.log_ratio, columns.excess, columns.k3, columns.probability_difference):
        assert not bool(column.any())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_was_not_compiled_for_runs_eagerly(compiled: Derive, dtype: torch.dtype) -> None:
    sides = log_probs(FEWEST_TOKENS, 0.05)[..., :100].to(dtype)
    assert [c.tolist() for c in compiled(sides)] == [c.tolist() for c in token_columns(sides)]
