"""What is imported when: a trainer pays for numpy alone, and torch is loaded by what computes and by nothing else."""

import json
import subprocess
import sys
from functools import cache

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
    seconds = list[float]()
    while not seconds or (min(seconds) >= 0.1 and len(seconds) < 5):  # a busy machine may take longer
        took, heavy = printed(code).split(maxsplit=1)
        assert heavy == "[]"
        seconds.append(float(took))
    assert min(seconds) < 0.1


@cache
def loaded_after() -> dict[str, bool]:
    """Whether torch is loaded by what one process does, one after the other, and what listings load beside it."""
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
    modules = ["server.app", "server.process", "store.store", "pipeline.stages", "catalogue"]
    code = (
        "import contextlib, gc, importlib, json, sys\ngc.disable()\nfrom offpolicy_monitor.cli import main\n"
        f"for arguments in {asked}:\n"
        "    with contextlib.suppress(SystemExit): main(arguments)\n"
        "listing = 'torch' in sys.modules\n"
        "database = 'sqlalchemy' in sys.modules\n"
        f"for module in {modules}: importlib.import_module(f'offpolicy_monitor.{{module}}')\n"
        "print(json.dumps({'listing': listing, 'database': database, 'serving': 'torch' in sys.modules}))"
    )
    found: dict[str, bool] = json.loads(printed(code))
    return found


def test_listings_and_help_texts_are_printed_without_torch() -> None:
    assert not loaded_after()["listing"]


def test_listings_and_help_texts_are_printed_without_a_library_of_databases() -> None:
    assert not loaded_after()["database"]


def test_what_serves_and_stores_is_imported_without_torch() -> None:
    assert not loaded_after()["serving"]


def test_what_helpers_are_forks_of_has_neither_torch_nor_a_database_nor_metrics_nor_a_log() -> None:
    heavy = {"alembic", "fastapi", "prometheus_client", "sqlalchemy", "structlog", "torch"}
    code = f"import sys, offpolicy_monitor.pipeline.helpers.nursery; print(sorted({heavy} & set(sys.modules)))"
    assert printed(code) == "[]"


def test_the_list_of_commands_costs_neither_numpy_nor_what_serves() -> None:
    code = (
        "import contextlib, sys\nfrom offpolicy_monitor.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "print(sorted({'numpy', 'torch', 'fastapi', 'pydantic', 'sqlalchemy', 'http.client'} & set(sys.modules)))"
    )
    assert printed(code) == "[]"
