"""constraints.txt holds the version of everything that an install of all extras brings."""

from importlib.metadata import version
from pathlib import Path

from packaging.utils import canonicalize_name

from scripts.licences import closure

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"


def test_every_version_that_is_installed_is_the_one_in_the_constraints() -> None:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    pinned = {canonicalize_name(name): pin for name, _, pin in (line.partition("==") for line in lines)}
    needed = closure("offpolicy-monitor", frozenset({"server", "postgres", "ray", "dev"}))
    installed = {name: version(name).split("+")[0] for name in needed}
    assert {"torch", "numpy", "sqlalchemy", "pytest"} <= needed
    assert {name: pinned.get(name) for name in needed} == installed


def test_the_constraints_name_no_local_build_and_no_index() -> None:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if "==" not in line or "+" in line or "/" in line] == []
