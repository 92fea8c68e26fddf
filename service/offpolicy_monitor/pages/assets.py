"""The files that pages load, by their paths below `static/`, and bundles of them.

A digest of all of them stands in their addresses: an address names a content for good, so that browsers keep it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from offpolicy_monitor.pages import bundle

FOLDER: Final = Path(__file__).parent / "static"
#: Bytes of a digest in an address.
DIGITS: Final = 12


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
#: Of the files, and of what makes bundles of them.
VERSION: Final = digest({**FILES, "": Path(bundle.__file__)})
#: The colours of the dark theme come last, in an element of their own.
DARK: Final = "style/dark.css"
STYLES: Final = ("vendor/uplot/uPlot.min.css", *(name for name in FILES if name.startswith("style/") and name != DARK))
#: What scripts plot with, which pages load by themselves.
PLOTTING: Final = "vendor/uplot/uPlot.iife.min.js"
#: All styles but DARK.
STYLE: Final = "bundles/style.css"
#: The scripts of pages with all that they import, by their paths in addresses.
SCRIPTS: Final = {
    name.replace("pages/", "bundles/"): name for name in FILES if name.startswith("pages/") and name.count("/") == 1
}
#: Everything that is served.
NAMES: Final = frozenset((*FILES, *SCRIPTS, STYLE))


@cache
def content(name: str) -> bytes:
    """What a file or a bundle holds; it stays in memory."""
    if name == STYLE:
        return bundle.styles(STYLES, text).encode()
    return bundle.script(SCRIPTS[name], text).encode() if name in SCRIPTS else FILES[name].read_bytes()


@cache
def imported(name: str | None) -> Sequence[str]:
    """The scripts that a bundle of them is made of; none of no bundle."""
    return bundle.order(SCRIPTS[name], text) if name else ()


def text(name: str) -> str:
    """What a file or a bundle of text holds."""
    return content(name).decode()
