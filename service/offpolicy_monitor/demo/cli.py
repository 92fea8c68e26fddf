"""`offpolicy-monitor demo`: flags to DemoConfig, signals to a clean end and an exit status.

torch is imported when a run starts and not for `--help`.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import get_args

from offpolicy_monitor.commandline import DONE, INTERRUPTED, natural, positive, run_name, some_seconds
from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.engines.kinds import (
    ENGINES,
    Precision,
    require_installed,
    require_plantable,
    require_precision,
)
from offpolicy_monitor.demo.faults import Fault, describe_faults, parse_fault
from offpolicy_monitor.demo.scenarios import SCENARIOS, config_at, describe_scenarios
from offpolicy_monitor.errors import ConfigurationError

DEFAULT_SECONDS = 180.0
HEADS = 2  # of a policy that vLLM can load: 32 wide each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the demo's flags."""
    default = DemoConfig()
    parser.add_argument("--url", default=os.environ.get("OFFPOLICY_URL", default.url), help="service (%(default)s)")
    parser.add_argument("--run", type=run_name, help="name of the run (demo- and the time)")
    parser.add_argument("--attempt", type=natural, help="restart epoch (found out from the service)")
    parser.add_argument(
        "--sampler",
        choices=get_args(Precision),
        help=f"the engine's precision; exact is the trainer's own, whose mismatch is 0 ({default.sampler})",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="a real engine, where it is installed: vLLM (bfloat16 or exact) or CTranslate2 (int8 or exact)",
    )
    parser.add_argument(
        "--lag", type=natural, default=default.lag, help="steps from sampling to training (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=default.seed, help="decides weights, prompts and answers")
    wrong = parser.add_mutually_exclusive_group()
    wrong.add_argument("--fault", type=fault, metavar="NAME[=STRENGTH]", help=f"plant a known bug. {describe_faults()}")
    wrong.add_argument(
        "--scenario",
        choices=SCENARIOS,
        default=default.scenario,
        metavar="NAME",
        help=f"what goes wrong from a step on. {describe_scenarios()} (%(default)s)",
    )
    parser.add_argument(
        "--onset",
        type=natural,
        metavar="STEP",
        help=f"first step of it (of a scenario {default.onset}, of a fault {default.fault_from})",
    )
    parser.add_argument(
        "--rescore",
        action="store_true",
        help="have the engine's prefill read what it sampled once more: engine_logprobs, which split the mismatch",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive, help="end after this many training steps")
    length.add_argument("--seconds", type=some_seconds, help=f"end after this time ({DEFAULT_SECONDS:.0f})")
    length.add_argument("--forever", action="store_true", help="go on until interrupted")


def fault(text: str) -> Fault:
    """A fault by name, with or without its strength, or argparse's error."""
    try:
        return parse_fault(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def config_of(args: argparse.Namespace) -> DemoConfig:
    """The configuration that parsed flags ask for."""
    bounded = args.forever or args.steps is not None or args.seconds is not None
    default = DemoConfig()
    usual: Precision = default.sampler if args.engine is None else ENGINES[args.engine].precisions[0]
    return DemoConfig(
        url=args.url,
        run=args.run or time.strftime("demo-%Y%m%d-%H%M%S"),
        attempt=args.attempt,
        sampler=args.sampler or usual,
        engine=args.engine,
        steps=args.steps,
        seconds=args.seconds if bounded else DEFAULT_SECONDS,
        seed=args.seed,
        lag=args.lag,
        fault=args.fault,
        fault_from=args.onset or 0,
        scenario=args.scenario,
        onset=default.onset if args.onset is None else args.onset,
        rescored=args.rescore,
        heads=default.heads if args.engine is None else HEADS,
    )


def require_possible(config: DemoConfig) -> None:
    """Raise ConfigurationError where a real engine is asked for what it cannot do, or is not there."""
    if config.engine is None:
        return
    kind = ENGINES[config.engine]
    require_precision(kind, config.sampler)
    for planted in (config.fault, config_at(config, config.onset).fault):
        if planted is not None:
            require_plantable(kind, planted)
    require_installed(kind)


class Stop(threading.Event):
    """Set where the run is to end; `by` is the signal that asked for it, None where none did."""

    by: int | None = None


def main(args: argparse.Namespace) -> int:
    """Run the demo; answers the exit status. Raises ConfigurationError for a missing library, Unreachable."""
    config = config_of(args)
    require_possible(config)
    try:
        from offpolicy_monitor.demo.console import Console
        from offpolicy_monitor.demo.train import run_demo
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error}. The demo needs: pip install 'offpolicy-monitor[server]'") from error
    console, stop = Console(sys.stdout), Stop()
    with ExitStack() as entered:

        def opening(config: DemoConfig) -> None:
            entered.enter_context(stop_on_signals(stop))  # until then there is nothing to bring to an end
            console.opening(config)

        result = run_demo(config, console.report, stop, opening)
    console.closing(result)
    return INTERRUPTED if stop.by == signal.SIGINT else DONE


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event; a second signal interrupts at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.by = number
        stop.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
