"""constraints.txt holds the version of everything that an install of all extras brings."""

from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
PINNED_BY_TORCH = ("nvidia-", "cuda-", "triton")


def closure(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> set[NormalizedName]:
    """The canonical names of all that `name[extras]` needs here, itself left out."""
    if (name, extras) in seen:
        return set()
    seen.add((name, extras))
    found: set[NormalizedName] = set()
    for text in requires(name) or []:
        needed = Requirement(text)
        wanted = needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras | {""})
        if wanted and not needed.name.startswith(PINNED_BY_TORCH):
            found |= {canonicalize_name(needed.name)} | closure(needed.name, frozenset(needed.extras), seen)
    return found


def test_every_version_that_is_installed_is_the_one_in_the_constraints() -> None:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    pinned = {canonicalize_name(name): pin for name, _, pin in (line.partition("==") for line in lines)}
    needed = closure("offpolicy-monitor", frozenset({"server", "postgres", "dev"}), set())
    installed = {name: version(name).split("+")[0] for name in needed}
    assert {"torch", "numpy", "sqlalchemy", "pytest"} <= needed
    assert {name: pinned.get(name) for name in needed} == installed


def test_the_constraints_name_no_local_build_and_no_index() -> None:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if "==" not in line or "+" in line or "/" in line] == []
