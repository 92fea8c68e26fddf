"""The corpus: inputs that were read wrong once, a folder for each target; `make fuzz` adds what it finds."""

from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).with_name("corpus")


def kept() -> Iterator[tuple[str, Path]]:
    """Target and file of every case."""
    for path in sorted(FOLDER.glob("*/*")):
        yield path.parent.name, path
