"""Licences of what an installed service brings, against those that licences.toml accepts (`make lint`).

Reads the metadata of the distributions that are installed here for the runtime extras: what a user gets, not the tools
that check it. Asks nobody, so it changes only when a dependency does.
"""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

FILE: Final = Path(__file__).resolve().parent.parent / "licences.toml"
PROJECT: Final = "offpolicy-monitor"
EXTRAS: Final = frozenset({"server", "postgres", "ray"})
#: What a CUDA build of torch brings of its own; constraints.txt leaves it out too.
PINNED_BY_TORCH: Final = ("nvidia-", "cuda-", "triton")
JOINED: Final = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
NONE: Final = "no licence that its metadata names"


@dataclass(frozen=True)
class Accepted:
    """Licences by SPDX, as some metadata writes them, and of single distributions, each for a reason."""

    everywhere: frozenset[str]
    single: Mapping[str, str]

    def takes(self, name: str, licence: str) -> bool:
        """Whether an expression is accepted: all that AND joins, one of what OR joins."""
        if self._known(name, licence):  # free text may have brackets that are no expression's
            return True
        words = re.split(r"(\(|\)|\bAND\b|\bOR\b)", licence)
        # Of nothing but these words, which bind in Python as in SPDX.
        told = [JOINED.get(word) or str(self._known(name, word.strip())) for word in words if word.strip()]
        try:
            return bool(eval(" ".join(told), {}))
        except (SyntaxError, TypeError):
            return False

    def _known(self, name: str, licence: str) -> bool:
        return licence in self.everywhere or self.single.get(name) == licence


def read(file: Path = FILE) -> Accepted:
    """What the file accepts."""
    table: dict[str, Any] = tomllib.loads(file.read_text())
    single = {name: entry["licence"] for entry in table["only"] for name in entry["packages"]}
    return Accepted(frozenset(table["accepted"]), single)


def closure(
    name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]] | None = None
) -> set[NormalizedName]:
    """The canonical names of all that `name[extras]` needs here, itself left out."""
    seen = set() if seen is None else seen
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


def licences(name: str) -> Sequence[str]:
    """What the metadata says, the most exact first; more than one where older metadata lists several."""
    found = metadata(name)
    if expression := found.get_all("License-Expression", []):
        return expression
    listed = [text.rpartition(" :: ")[2] for text in found.get_all("Classifier", []) if text.startswith("License ::")]
    free = [text.strip().splitlines()[0] for text in found.get_all("License", []) if text.strip()]
    return listed or free or [NONE]


def refused(names: Sequence[str], accepted: Accepted, said: Callable[[str], Sequence[str]] = licences) -> Iterator[str]:
    """A line for each distribution of which a licence is not accepted; where metadata lists several, all must be."""
    for name in names:
        others = [licence for licence in said(name) if not accepted.takes(name, licence)]
        if others:
            yield f"{name}: {', '.join(others)}"


def main() -> None:
    """Say what is not accepted, and end with 1."""
    try:
        names = sorted(closure(PROJECT, EXTRAS))
    except PackageNotFoundError as error:
        sys.exit(f"licences: {error.name} is not installed, so its licence is not known; `make lint` installs it")
    found = list(refused(names, read()))
    if found:
        sys.exit(
            "\n".join([*found, f"Not accepted by {FILE.name}: read the licence, then add it there, or do without."])
        )


if __name__ == "__main__":
    main()
