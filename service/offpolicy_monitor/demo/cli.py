"""`offpolicy-monitor demo`: flags to DemoConfig, signals to a clean end, errors to an exit status.

torch is imported when a run starts and not for `--help`.
"""

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import get_args

from offpolicy_monitor.demo.config import DemoConfig, SamplerName
from offpolicy_monitor.demo.faults import Fault, describe_faults, parse_fault
from offpolicy_monitor.demo.scenarios import SCENARIOS, describe_scenarios
from offpolicy_monitor.errors import ConfigurationError

DEFAULT_SECONDS = 180.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the demo's flags."""
    default = DemoConfig()
    parser.add_argument("--url", default=os.environ.get("OFFPOLICY_URL", default.url), help="service (%(default)s)")
    parser.add_argument("--run", help="name of the run (demo- and the time)")
    parser.add_argument("--attempt", type=natural, help="restart epoch (found out from the service)")
    parser.add_argument(
        "--sampler",
        choices=get_args(SamplerName),
        default=default.sampler,
        help="the engine's precision; exact is the trainer's own, whose mismatch is 0 (%(default)s)",
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
        "--onset", type=natural, default=default.onset, metavar="STEP", help="first step of it (%(default)s)"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive, help="end after this many training steps")
    length.add_argument("--seconds", type=duration, help=f"end after this time ({DEFAULT_SECONDS:.0f})")
    length.add_argument("--forever", action="store_true", help="go on until interrupted")


def natural(text: str) -> int:
    """A whole number from 0, or argparse's error."""
    return _at_least(int(text), 0)


def positive(text: str) -> int:
    """A whole number from 1, or argparse's error."""
    return _at_least(int(text), 1)


def duration(text: str) -> float:
    """Seconds, more than 0 and finite, or argparse's error."""
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be more than 0 seconds: {text}")
    return seconds


def fault(text: str) -> Fault:
    """A fault by name, with or without its strength, or argparse's error."""
    try:
        return parse_fault(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _at_least(number: int, least: int) -> int:
    if number < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}: {number}")
    return number


def config_of(args: argparse.Namespace) -> DemoConfig:
    """The configuration that parsed flags ask for."""
    bounded = args.forever or args.steps is not None or args.seconds is not None
    return DemoConfig(
        url=args.url,
        run=args.run or time.strftime("demo-%Y%m%d-%H%M%S"),
        attempt=args.attempt,
        sampler=args.sampler,
        steps=args.steps,
        seconds=args.seconds if bounded else DEFAULT_SECONDS,
        seed=args.seed,
        lag=args.lag,
        fault=args.fault,
        scenario=args.scenario,
        onset=args.onset,
    )


def main(args: argparse.Namespace) -> int:
    """Run the demo: 0 when it ended or was asked to, 1 when it could not start, 3 when a library is missing."""
    config = config_of(args)
    try:
        from offpolicy_monitor.demo.console import Console
        from offpolicy_monitor.demo.train import run_demo
    except ModuleNotFoundError as error:
        print(f"error: {error}. The demo needs: pip install 'offpolicy-monitor[server]'", file=sys.stderr)
        return 3
    console = Console(sys.stdout)
    try:
        with stop_on_signals() as stop:
            result = run_demo(config, console.report, stop, console.opening)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    console.closing(result)
    return 0


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second signal interrupts at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
