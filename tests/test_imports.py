"""What is imported when: a trainer pays for numpy alone, and torch is loaded by what computes and by nothing else."""

import subprocess
import sys

HEAVY = "{'torch', 'pydantic', 'fastapi', 'sqlalchemy', 'requests', 'pandas'}"


def printed(code: str) -> str:
    """What a fresh interpreter prints last."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_importing_the_monitor_beside_numpy_takes_under_a_tenth_of_a_second_and_nothing_heavy() -> None:
    code = (
        "import numpy, sys, time; t = time.process_time(); from offpolicy_monitor import Monitor;"
        f"print(time.process_time() - t, sorted({HEAVY} & set(sys.modules)))"
    )
    lines = [printed(code) for _ in range(5)]
    assert {line.split(maxsplit=1)[1] for line in lines} == {"[]"}
    assert min(float(line.split()[0]) for line in lines) < 0.1


def test_what_serves_and_stores_is_imported_without_torch() -> None:
    modules = ["server.app", "server.process", "store", "pipeline.stages", "catalogue"]
    code = (
        "import importlib, sys\n"
        f"for module in {modules}: importlib.import_module(f'offpolicy_monitor.{{module}}')\n"
        "print('torch' in sys.modules)"
    )
    assert printed(code) == "False"


def test_listings_and_help_texts_are_printed_without_torch() -> None:
    asked = [
        ["--help"],
        ["version"],
        ["runs", "--help"],
        ["serve", "--help"],
        ["demo", "--help"],
        ["replay", "--help"],
        ["settings"],
        ["methods", "--json"],
    ]
    code = (
        "import contextlib, sys\nfrom offpolicy_monitor.cli import main\n"
        f"for arguments in {asked}:\n"
        "    with contextlib.suppress(SystemExit): main(arguments)\n"
        "print('torch' in sys.modules)"
    )
    assert printed(code) == "False"


def test_the_list_of_commands_costs_neither_numpy_nor_what_serves() -> None:
    code = (
        "import contextlib, sys\nfrom offpolicy_monitor.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "print(sorted({'numpy', 'torch', 'fastapi', 'pydantic', 'sqlalchemy', 'http.client'} & set(sys.modules)))"
    )
    assert printed(code) == "[]"
