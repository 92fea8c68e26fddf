"""The process that compiles a pass over the tokens: `python -m offpolicy_monitor.measure.compiler`.

It is started by measure.compilation, at the lowest priority, with what to compile (`fused`, or the device that kernels
are for), the folder of what is compiled and a folder to build in; it tries what it built before it publishes it. It
ends with whoever started it, and all its compilers with it.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from offpolicy_monitor.core.columns import token_columns
from offpolicy_monitor.measure import kernels, library
from offpolicy_monitor.measure.library import FUSED


class Columns(torch.nn.Module):
    """token_columns in the form that torch exports."""

    def forward(self, sides: Tensor) -> tuple[Tensor, ...]:
        """Its columns, without their names."""
        return tuple(token_columns(sides))


def main(what: str, cache: str, build: str) -> int:
    """The exit status; where it is not 0, the last line that was printed says why."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        make = make_fused if what == FUSED else make_kernels(what)
        make(Path(cache), Path(build))
    except Exception as error:  # a missing or failing compiler shows as any of a dozen types
        print(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}", flush=True)
        return 1
    return 0


def make_fused(cache: Path, build: Path) -> None:
    """The fused pass, as numba keeps it."""
    from offpolicy_monitor.fused import compiled as fused

    made = build / "pass"
    made.mkdir(mode=0o700)
    fused.allow_many_columns()
    fused.keep_in(made)
    _collect_seldom()
    fused.try_all()
    library.publish_pass(made, cache)


def _collect_seldom() -> None:
    """What is made of a function lives as long as that is compiled: to look for garbage took numba an eighth, and torch
    a quarter."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def make_kernels(device_name: str) -> Callable[[Path, Path], None]:
    """core's pass for a device, as torch compiles it."""

    def make(cache: Path, build: Path) -> None:
        device = torch.device(device_name)
        torch.set_num_threads(1)
        _collect_seldom()
        built = compiled(build / "columns.so", device)
        kernels.load(built, device)
        library.publish(built, cache, device)

    return make


def compiled(path: Path, device: torch.device) -> Path:
    """Compile for columns of any length from FEWEST_TOKENS on, into one shared object; raises what torch raises."""
    sides = kernels.sample(max(kernels.TRIED), device)
    tokens = torch.export.Dim("tokens", min=kernels.FEWEST_TOKENS)
    from torch._inductor import aot_compile

    exported = torch.export.export(Columns(), (sides,), dynamic_shapes=({2: tokens},))
    aot_compile(exported.module(), (sides,), options={"aot_inductor.output_path": str(path), **options(device)})
    return path


def options(device: torch.device) -> dict[str, object]:
    """One file with everything in it, without what makes later compilations faster: there are none."""
    return {
        "aot_inductor.embed_kernel_binary": device.type == "cuda",
        "aot_inductor.precompile_headers": False,
        "aot_inductor.compile_wrapper_opt_level": "O0",  # what calls the kernels, not the kernels
    }


def _end_with_parent() -> None:
    """Standard input ends when the process that started this one does, however it does."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
