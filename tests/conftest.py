"""What every test may ask for; the fixtures themselves are in tests/fixtures."""

import gc
import logging
import os
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.fixtures.memory import use_memory
from tests.fixtures.statements import share_statements

# Until the tests begin modules are loaded, of which nothing becomes garbage: to look for it takes a third of that time.
gc.disable()

use_memory()
share_statements()

# Before torch is imported: its threads would wait for one another by computing, and beside other processes, which have
# their turn meanwhile, a test takes up to five times as much of a processor.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

pytest_plugins = [
    "tests.fixtures.application",
    "tests.fixtures.chromium",
    "tests.fixtures.faults",
    "tests.fixtures.service",  # before planted, which imports it: what is imported is no plugin any more
    "tests.fixtures.planted",
    "tests.fixtures.postgres",
    "tests.fixtures.processes",
    "tests.fixtures.stores",
]

# Of the real frameworks none is installed here: `make frameworks` runs those tests.
collect_ignore = ["frameworks"]

#: Files that take longest, by waiting or by computing: where tests run in several processes, each of which takes file
#: after file, they are begun first, so that none is left alone with one of them at the end. In this order two processes
#: compute at any time: the first file compiles the pass, beside it stand those that wait and those that compute without
#: the pass, and whoever would wait for the pass comes when it is there.
LONGEST = (
    "fused/test_against_oracle.py",
    "measure/test_compilation.py",
    "client/test_sending.py",
    "browser/test_pages.py",
    "test_processes.py",
    "client/files/test_commands.py",
    "browser/test_many_runs.py",
    "store/write/test_wall_clock.py",
    "packaging/test_wheel.py",
    "server/test_hanging_database.py",
    "e2e/test_proxies.py",
    "packaging/test_dockerfile.py",
    "alerts/test_step_alerts.py",
    "demo/test_scenarios.py",
    "e2e/test_two_processes.py",
    "measure/test_on_a_gpu.py",
    "summary/test_whatif.py",
    "summary/test_checks.py",
    "store/write/test_thin.py",
    "server/test_readiness.py",
    "client/adapters/test_trl.py",
    "e2e/test_notifier.py",
    "test_cli.py",
    "detection/test_detection.py",
    "diagnosis/test_diagnosis.py",
    "e2e/test_prometheus.py",
    "diagnosis/test_demo_faults.py",
    "older/test_trainer.py",
    "e2e/test_storm.py",
    "fused/test_against_torch.py",
    "e2e/test_evaluation.py",
    "server/http/test_connection.py",
    "server/test_readers.py",
    "client/test_restart.py",
    "older/test_database.py",
    "server/test_training_steps.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the longest files first; the others stay in their order."""
    order = {Path(__file__).parent / name: index for index, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def pytest_collection_finish() -> None:
    """What is there now stays to the end: nobody looks through it for garbage again, or adds handlers to all of it."""
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True  # to each that does not, as forty of torch's, pytest adds six handlers per test
    gc.collect()
    gc.freeze()
    # Most tests make fewer objects than the first; the third, since to look through all that they import takes 0.1 s.
    gc.set_threshold(20_000, 10, 100)
    gc.enable()


# Every run tries the same examples, however busy the machine is, and leaves no files behind.
settings.register_profile(
    "reproducible", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("reproducible")

# As the service logs: rich, where something has installed it, takes seconds to draw every local of a traceback.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

# A compiler in the background of every application under test would slow all of them; tests of it ask for it.
os.environ["OFFPOLICY_TORCH_COMPILE"] = "false"
