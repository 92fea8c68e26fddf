"""Style: how wide a terminal is and whether it shows colours; a sign for each level, so that no colour is alone."""

import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TextIO

#: Columns where nobody looks on: lines are left whole, for programs that read them.
ENDLESS: Final = 1 << 16
#: Columns of text that still read well.
READABLE: Final = 100
_CODES: Final = {"healthy": "32", "warn": "33", "critical": "1;31", "unknown": "2", "quiet": "2", "bold": "1"}
SIGNS: Final = {"healthy": "✓", "warn": "▲", "critical": "■", "unknown": "○"}

#: Levels of verdicts and of severities.
LEVELS: Final = {
    "accept": "healthy", "warn": "warn", "skip": "critical",
    "info": "healthy", "warning": "warn", "critical": "critical",
}  # fmt: skip
#: States of a run that are no judgement of its figures.
NOT_JUDGED: Final = frozenset({"silent", "finished", "too_early", "not_measured"})


@dataclass(frozen=True)
class Style:
    """Columns, and whether there are colours."""

    width: int = ENDLESS
    colours: bool = False

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour by its meaning; as it is where there are none."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colours and colour and text else text

    def wrapped(self, text: str, indent: str = "", hanging: str | None = None) -> list[str]:
        """Lines of at most the width, and of what reads well on a terminal; `hanging`: indent of all but the first."""
        if self.width == ENDLESS:
            return [indent + clean(text)]
        width = max(20, min(self.width, READABLE))
        return textwrap.wrap(
            clean(text), width, initial_indent=indent, subsequent_indent=indent if hanging is None else hanging
        )


def style_of(stream: TextIO, environment: Mapping[str, str]) -> Style:
    """That of a stream: colours on a terminal without NO_COLOR alone; COLUMNS counts, also where there is none."""
    on_terminal = stream.isatty()
    plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
    known = on_terminal or environment.get("COLUMNS", "").isdecimal()
    return Style(shutil.get_terminal_size().columns if known else ENDLESS, on_terminal and not plain)


def clean(text: object) -> str:
    """A client's text without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def level_of(said: Mapping[str, object]) -> str:
    """healthy, warn, critical or unknown, of a verdict."""
    return "unknown" if said["state"] in NOT_JUDGED else LEVELS[str(said["verdict"])]
