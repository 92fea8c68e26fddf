"""The tables of docs/frameworks/README.md, out of the lines that stand at the top of each framework's page.

Such a line is an item of a list, its name in bold: "* **Run with:** release 0.3.0", and may go on over indented lines.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.docs.markdown import table

PAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "frameworks"
RUN: Final = "Run with"
FRAMEWORKS: Final = "By `make frameworks`"
VERSION: Final = "`policy_version` counts"
SAMPLED: Final = "The version that sampled"
END: Final = "The end is said"
#: The names of the lines, in their order, with the head of their column.
LINES: Final[Mapping[str, str]] = {
    RUN: "run, and only read",
    FRAMEWORKS: "run by `make frameworks`",
    "Where": "the hook",
    "Log-probs by default": "log-probs by default, and how to have the others",
    "Gradient steps per step": "gradient steps per step",
    "Ranks that post": "ranks that post",
    "Scaled by the sampling temperature": "scaled by the sampling temperature",
    VERSION: VERSION,
    SAMPLED: "the version that sampled",
    END: "the end is said",
}
_LINE: Final = re.compile(r"^\* \*\*(?P<name>[^*]+):\*\* (?P<text>.+(?:\n  \S.*)*)", re.MULTILINE)


def lines(page: str) -> dict[str, str]:
    """By name, the text of each line between the title and the first paragraph of a page."""
    top = page.partition("\n\n")[2].partition("\n\n")[0]
    return {found["name"]: " ".join(found["text"].split()) for found in _LINE.finditer(top)}


def by_default() -> str:
    """One row per page: what is posted, by whom, and what it is of."""
    return _table([name for name in LINES if name not in (RUN, FRAMEWORKS, VERSION, SAMPLED, END)])


def run_with() -> str:
    """One row per page: the version, what was run of it and what was only read, and whether anybody can run it here."""
    return _table([RUN, FRAMEWORKS])


def versions_and_ends() -> str:
    """One row per page: what a version counts there, and who says that the run has ended."""
    return _table([VERSION, SAMPLED, END])


def _table(names: Sequence[str]) -> str:
    rows = [(link, *(said[name] for name in names)) for link, said in _pages()]
    return table(("framework", *(LINES[name] for name in names)), rows)


def _pages() -> Iterator[tuple[str, dict[str, str]]]:
    """The pages that have the lines, by their titles."""
    texts = {path: path.read_text() for path in PAGES.glob("*.md") if path.name != "README.md"}
    for path, text in sorted(texts.items(), key=lambda item: item[1].casefold()):
        if said := lines(text):
            yield f"[{text.splitlines()[0].removeprefix('# ')}]({path.name})", said
