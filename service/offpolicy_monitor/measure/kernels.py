"""core's one pass over the tokens of a gap, as it is or compiled by torch.

Compiling takes some ten seconds and a C++ compiler, so it happens on a thread of its own while the eager function
serves. Both give the same figures to float32 rounding. Where compiling fails, the eager function serves for good.
"""

import threading
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.core.columns import TokenColumns, token_columns
from offpolicy_monitor.core.gap import Derive

#: The thread that compiles, for those who must not end the interpreter under it.
THREAD: Final = "compile"

#: Below this many tokens a compiled function's checks cost as much as it saves.
FEWEST_TOKENS: Final = 1 << 13


def compile_columns(device: torch.device) -> Derive:
    """token_columns compiled for float32 columns of any length on this device, and tried; raises what torch raises."""
    compiled = torch.compile(token_columns, dynamic=True, fullgraph=True)
    for tokens in (FEWEST_TOKENS, 3 * FEWEST_TOKENS + 5):
        sample = torch.linspace(-3.0, -0.01, tokens, device=device)
        compiled(sample, sample * 1.01)

    def derive(a: Tensor, b: Tensor) -> TokenColumns:
        """Long float32 columns by the compiled function, which must never compile again while a batch waits."""
        if a.dtype != torch.float32 or len(a) < FEWEST_TOKENS:
            return token_columns(a, b)
        with torch.compiler.set_stance("eager_on_recompile"):
            return compiled(a, b)

    return derive


def compile_in_background(device: torch.device, ready: Callable[[Derive | Exception], None]) -> threading.Thread:
    """Compile on a daemon thread; `ready` is called there with the function, or with the reason why there is none."""

    def work() -> None:
        try:
            outcome: Derive | Exception = compile_columns(device)
        except Exception as error:  # a missing or failing compiler shows as any of a dozen types
            outcome = error
        ready(outcome)

    thread = threading.Thread(target=work, name=THREAD, daemon=True)
    thread.start()
    return thread
