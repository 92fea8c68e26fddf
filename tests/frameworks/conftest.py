"""What the tests of the real frameworks ask for: modules of theirs, tensors, and a monitor that keeps what it is given.

They run in an environment of their own (`make frameworks`), so nothing here imports the service or its fixtures. A
framework that is missing fails its tests: skipped, they would keep nothing.
"""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

Real = Callable[..., Any]


class Recorder:
    """Keeps the calls, and of each end that was said whether it was for the run; strict, so that mistakes surface."""

    strict = True

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.ends: list[bool] = []

    def log(self, *, step: int, **arguments: Any) -> None:
        self.calls.append({"step": step, **arguments})

    def finish(self, *, for_run: bool = False) -> None:
        self.ends.append(for_run)


@pytest.fixture
def monitor() -> Recorder:
    return Recorder()


@pytest.fixture
def tokens() -> dict[str, torch.Tensor]:
    """Four answers of up to six tokens, every value another one, under the contract's names."""
    draws = torch.Generator().manual_seed(7)
    old = -2 * torch.rand(4, 6, generator=draws)
    return {
        "sampling_logprobs": old + 0.1 * torch.rand(4, 6, generator=draws),
        "old_logprobs": old,
        "advantages": torch.randn(4, 6, generator=draws),
        "mask": torch.arange(6) < torch.tensor([[6], [3], [1], [4]]),
    }


@pytest.fixture
def real() -> Real:
    """`real(module)` imports it; `real(module, bare=package)` does so without running the package's own __init__."""

    def imported(module: str, *, bare: str | None = None) -> Any:
        try:
            if bare is not None and bare not in sys.modules:
                _enter(bare)
            return importlib.import_module(module)
        except ImportError as error:
            pytest.fail(
                f"{module} cannot be imported ({error}). `make frameworks` installs tests/frameworks/packages.txt and, "
                "with --no-deps, frameworks.txt there, and the packages.txt of a test's own folder."
            )

    return imported


def _enter(package: str) -> None:
    """Make the folder of a package importable where its __init__ needs what is not to be had here."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"No module named {package!r}")
    entered = types.ModuleType(package)
    entered.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = entered
