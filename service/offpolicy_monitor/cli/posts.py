"""The subcommands that post to a service: the demo trainer, and dump files of real ones."""

import argparse
from typing import Final

from offpolicy_monitor.cli.command import Command, add_where_installed, needed


def _add_demo(child: argparse.ArgumentParser) -> None:
    add_where_installed(child, "demo.cli")


def _demo(options: argparse.Namespace) -> int:
    return int(needed("demo.cli").main(options))


def _of_files(name: str, summary: str, examples: tuple[str, ...]) -> Command:
    return Command(
        name,
        summary,
        examples,
        lambda child: getattr(needed("client.files.command"), f"add_{name}_arguments")(child),
        lambda options: int(getattr(needed("client.files.command"), name)(options)),
    )


POSTS: Final = (
    Command(
        "demo",
        "train a small policy by GRPO on the CPU and post every gradient step to a running service",
        ("$ demo", "$ demo --forever", "$ demo --fault top_p"),
        _add_demo,
        _demo,
    ),
    _of_files(
        "tail",
        "follow a folder that a trainer dumps its batches into, and post them as they come",
        (
            "$ tail outputs/run/token_exports --format prime-rl --run r1",
            "$ tail logs/exp_001 --format nemo-rl --run r1 --url http://monitor:8900",
            "$ tail dumps --format jsonl --run r1 --once",
        ),
    ),
    _of_files(
        "replay",
        "post finished dump files, with a progress bar",
        (
            "$ replay train_data_step*.jsonl --run r1",
            "$ replay dumps/train_data --format slime --run r1 --from 100 --to 200 --dry-run",
        ),
    ),
)
