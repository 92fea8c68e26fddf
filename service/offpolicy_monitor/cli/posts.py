"""The subcommands that post to a service: the demo trainer, and dump files of real ones."""

from typing import Final

from offpolicy_monitor.cli.command import elsewhere

_FILES: Final = "client.files.command"

POSTS: Final = (
    elsewhere(
        "demo",
        "train a small policy by GRPO on the CPU and post every gradient step to a running service",
        ("$ demo", "$ demo --forever", "$ demo --fault top_p"),
        "demo.cli:add_arguments",
        "demo.cli:main",
    ),
    elsewhere(
        "tail",
        "follow a folder that a trainer dumps its batches into, and post them as they come",
        (
            "$ tail outputs/run/token_exports --format prime-rl --run r1",
            "$ tail logs/exp_001 --format nemo-rl --run r1 --url http://monitor:8900",
            "$ tail dumps --format jsonl --run r1 --once",
        ),
        f"{_FILES}:add_tail_arguments",
        f"{_FILES}:tail",
    ),
    elsewhere(
        "replay",
        "post finished dump files, with a progress bar",
        (
            "$ replay train_data_step*.jsonl --run r1",
            "$ replay dumps/train_data --format slime --run r1 --from 100 --to 200 --dry-run",
        ),
        f"{_FILES}:add_replay_arguments",
        f"{_FILES}:replay",
    ),
)
