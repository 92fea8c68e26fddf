"""The files that pages load, by their path below `static/`, and the digest that stands in their addresses.

An address names a content for good, so that browsers keep it; scripts find each other by relative paths beside it.
"""

import hashlib
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "static"
#: Bytes of a digest in an address.
DIGITS: Final = 12
#: A statement that imports, and the relative path that it names.
IMPORT: Final = re.compile(r'^(import .*?)"(\.{1,2}/[^"]+)";$', re.M | re.S)


def files(folder: Path = FOLDER) -> dict[str, Path]:
    """Every file, by its path with slashes."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in sorted(found)}


def digest(found: Mapping[str, Path]) -> str:
    """Hexadecimal digits of what all files hold and are called."""
    all_of_them = hashlib.sha256()
    for name, path in found.items():
        content = path.read_bytes()
        all_of_them.update(f"{name} {len(content)}\n".encode() + content)
    return all_of_them.hexdigest()[:DIGITS]


FILES: Final = files()
VERSION: Final = digest(FILES)


@cache
def content(name: str) -> bytes:
    """What a file holds; it stays in memory, since every page asks for some twenty of them."""
    return FILES[name].read_bytes()


@cache
def imported(name: str) -> tuple[str, ...]:
    """The scripts that a script needs, itself last, each after those that it needs itself.

    Raises KeyError where one names a file that there is not.
    """
    found: dict[str, None] = {}
    for _, relative in IMPORT.findall(FILES[name].read_text(encoding="utf-8")):
        found |= dict.fromkeys(imported(beside(name, relative)))
    return (*found, name)


def beside(name: str, relative: str) -> str:
    """The file that a script means by a relative path."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), relative))
