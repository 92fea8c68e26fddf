"""Gathered: several expositions in Prometheus' text format as one, each sample with the replica that it is of.

Every family comes once, whoever has samples of it. Knows text, and nothing of where it comes from.
"""

from collections.abc import Callable, Iterator
from typing import Final

HELP: Final = b"# HELP "
COMMENT: Final = b"#"
LABEL: Final = "replica"


class Gathered:
    """Expositions are added, then the text is asked for once."""

    def __init__(self) -> None:
        self._heads: dict[bytes, list[bytes]] = {}
        self._samples: dict[bytes, list[bytes]] = {}

    def add(self, text: bytes, replica: str | None, wanted: Callable[[str], bool]) -> None:
        """Of one process, those families whose name is `wanted`."""
        family = b""
        for line in text.splitlines():
            if line.startswith(HELP):
                name = line[len(HELP) :].partition(b" ")[0]
                family = name if wanted(name.decode()) else b""
                if family and family not in self._heads:
                    self._heads[family], self._samples[family] = [line], []
            elif not family:
                continue
            elif line.startswith(COMMENT):
                if line not in self._heads[family]:
                    self._heads[family].append(line)
            elif line:
                self._samples[family].append(line if replica is None else labelled(line, replica))

    def text(self) -> bytes:
        """All of them."""
        return b"\n".join([*self._lines(), b""])

    def _lines(self) -> Iterator[bytes]:
        for family, head in self._heads.items():
            yield from head
            yield from self._samples[family]


def labelled(sample: bytes, replica: str) -> bytes:
    """A sample with one label more, the first."""
    name, brace, rest = sample.partition(b"{")
    label = f'{LABEL}="{replica}"'.encode()
    if brace and b" " not in name:
        return b"%s{%s,%s" % (name, label, rest)
    name, _, value = sample.partition(b" ")
    return b"%s{%s} %s" % (name, label, value)
