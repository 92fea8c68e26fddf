"""What every test may ask for; the fixtures themselves are in tests/fixtures."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.fixtures.application",
    "tests.fixtures.faults",
    "tests.fixtures.postgres",
    "tests.fixtures.stores",
]

# Of the real frameworks none is installed here: `make frameworks` runs those tests.
collect_ignore = ["frameworks"]

# Every run tries the same examples, however busy the machine is, and leaves no files behind.
settings.register_profile(
    "reproducible", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("reproducible")

# A compiler in the background of every application under test would slow all of them; tests of it ask for it.
os.environ["OFFPOLICY_TORCH_COMPILE"] = "false"
