"""What every test may ask for; the fixtures themselves are in tests/fixtures."""

import os
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.fixtures.application",
    "tests.fixtures.chromium",
    "tests.fixtures.faults",
    "tests.fixtures.planted",
    "tests.fixtures.postgres",
    "tests.fixtures.stores",
]

# Of the real frameworks none is installed here: `make frameworks` runs those tests.
collect_ignore = ["frameworks"]

#: Files that take longest, by waiting or by computing, longest first. Where tests run in several processes, each of
#: which takes file after file, they are begun first, so that none is left alone with one of them at the end; and the
#: first one compiles the pass that many others need.
LONGEST = (
    "fused/test_against_oracle.py",
    "measure/test_compilation.py",
    "server/test_hanging_database.py",
    "browser/test_pages.py",
    "store/write/test_wall_clock.py",
    "client/files/test_commands.py",
    "server/test_readiness.py",
    "e2e/test_two_processes.py",
    "detection/test_detection.py",
    "demo/test_scenarios.py",
    "summary/test_whatif.py",
    "store/write/test_thin.py",
    "summary/test_checks.py",
    "older/test_trainer.py",
    "diagnosis/test_demo_faults.py",
    "server/http/test_connection.py",
    "measure/test_on_a_gpu.py",
    "packaging/test_wheel.py",
    "alerts/test_step_alerts.py",
    "server/test_readers.py",
    "packaging/test_dockerfile.py",
    "older/test_database.py",
    "e2e/test_storm.py",
    "browser/test_many_runs.py",
    "server/test_training_steps.py",
    "e2e/test_notifier.py",
    "e2e/test_prometheus.py",
    "client/test_restart.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the longest files first; the others stay in their order."""
    order = {Path(__file__).parent / name: index for index, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


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
