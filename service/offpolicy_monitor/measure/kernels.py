"""core's one pass over the tokens of a gap, compiled ahead of time: loaded from a file, and tried before it is used.

Both forms give the same figures to float32 rounding. Loading takes milliseconds and no compiler: what compiles runs in
a process of its own (measure.compilation).
"""

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from offpolicy_monitor.core.columns import TokenColumns, token_columns
from offpolicy_monitor.core.gap import Derive

#: How many gaps it computes at a time: all that there are.
GAPS: Final = 3
#: Below this many tokens the compiled form saves nothing; it was never tried there.
FEWEST_TOKENS: Final = 1 << 13
#: Lengths that it is tried on.
TRIED: Final = (FEWEST_TOKENS, 3 * FEWEST_TOKENS + 5)
TOLERANCE: Final = 1e-5
#: Bytes to which a GPU's kernels take their columns to be aligned.
ALIGNMENT: Final = 16


def load(path: Path, device: torch.device) -> Derive:
    """The compiled pass over the tokens. RuntimeError where the file holds none, ValueError for other figures."""
    runner = _runner(path, device)

    def derive(sides: Tensor) -> TokenColumns:
        """Long float32 columns of three gaps by the compiled form: it looks at no dtype or shape itself."""
        return TokenColumns(*runner.run([sides])) if _fits(sides, device) else token_columns(sides)

    for tokens in TRIED:
        _try(derive, tokens, device)
    return derive


def sample(tokens: int, device: torch.device) -> Tensor:
    """Log-probs of the numerators and the denominators of gaps, whose ratios are on both sides of 1: [2, GAPS, T]."""
    a = torch.linspace(-3.0, -0.01, GAPS * tokens, device=device).view(GAPS, tokens)
    return torch.stack([a, a * torch.linspace(0.9, 1.1, tokens, device=device)])


def _runner(path: Path, device: torch.device) -> Any:
    made: Any = torch._C._aoti
    if device.type == "cuda":
        return made.AOTIModelContainerRunnerCuda(str(path), 1, str(device))
    return made.AOTIModelContainerRunnerCpu(str(path), 1)


def _fits(sides: Tensor, device: torch.device) -> bool:
    aligned = device.type == "cpu" or sides.data_ptr() % ALIGNMENT == 0
    shaped = sides.ndim == 3 and sides.shape[:2] == (2, GAPS) and sides.shape[2] >= FEWEST_TOKENS
    held = sides.is_contiguous() and sides.dtype == torch.float32 and sides.device.type == device.type
    return aligned and shaped and held


def _try(derive: Derive, tokens: int, device: torch.device) -> None:
    sides = sample(tokens, device)
    for got, expected in zip(derive(sides), token_columns(sides), strict=True):
        if got.shape != expected.shape or not torch.allclose(got, expected, TOLERANCE, TOLERANCE * 1e-2):
            raise ValueError(f"the compiled figures of {tokens} tokens are not those of the plain ones")
