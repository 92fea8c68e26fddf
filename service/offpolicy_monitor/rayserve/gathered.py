"""Gathered: several expositions in one of Prometheus' formats as one, each sample with the replica that it is of.

Every family comes once, whoever has samples of it. Knows texts and messages, and nothing of where they come from.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from offpolicy_monitor.exposition import protobuf

HELP: Final = b"# HELP "
COMMENT: Final = b"#"
END: Final = b"# EOF"
LABEL: Final = "replica"
#: Fields of a MetricFamily.
_NAME, _METRIC = 1, 4
Wanted = Callable[[str], bool]


class Gathered(Protocol):
    """Expositions are added, then the whole is asked for once."""

    def add(self, content: bytes, replica: str | None, wanted: Wanted) -> None:
        """Of one process, those families whose name is `wanted`."""

    def whole(self) -> bytes:
        """All of them."""


class Lines:
    """Prometheus' text, or OpenMetrics."""

    def __init__(self) -> None:
        self._heads: dict[bytes, list[bytes]] = {}
        self._samples: dict[bytes, list[bytes]] = {}
        self._end: list[bytes] = []

    def add(self, content: bytes, replica: str | None, wanted: Wanted) -> None:
        """Lines of one process."""
        family = b""
        for line in content.splitlines():
            if line.startswith(HELP):
                name = line[len(HELP) :].partition(b" ")[0]
                family = name if wanted(name.decode()) else b""
                if family and family not in self._heads:
                    self._heads[family], self._samples[family] = [line], []
            elif line == END:
                self._end = [line]
            elif not family:
                continue
            elif line.startswith(COMMENT):
                if line not in self._heads[family]:
                    self._heads[family].append(line)
            elif line:
                self._samples[family].append(line if replica is None else labelled(line, replica))

    def whole(self) -> bytes:
        """All of them, and the end where the format has one."""
        return b"\n".join([*self._lines(), *self._end, b""])

    def _lines(self) -> Iterator[bytes]:
        for family, head in self._heads.items():
            yield from head
            yield from self._samples[family]


class Messages:
    """Protobuf, whose histograms have native buckets too."""

    def __init__(self) -> None:
        self._heads: dict[bytes, bytes] = {}
        self._metrics: dict[bytes, list[bytes]] = {}

    def add(self, content: bytes, replica: str | None, wanted: Wanted) -> None:
        """Messages of one process."""
        label, at = b"" if replica is None else protobuf.label(LABEL, replica), 0
        while at < len(content):
            size, begin = protobuf.read_varint(content, at)
            at = begin + size
            name, head, metrics = b"", b"", list[bytes]()
            for field, whole, value in protobuf.fields(content[begin:at]):
                if field == _METRIC:
                    metrics.append(protobuf.sized(_METRIC, label + value))
                    continue
                head += whole
                name = value if field == _NAME else name
            if wanted(name.decode()):
                self._heads.setdefault(name, head)
                self._metrics.setdefault(name, []).extend(metrics)

    def whole(self) -> bytes:
        """All of them."""
        families = (head + b"".join(self._metrics[name]) for name, head in self._heads.items())
        return b"".join([protobuf.varint(len(family)) + family for family in families])


def labelled(sample: bytes, replica: str) -> bytes:
    """A sample with one label more, the first."""
    name, brace, rest = sample.partition(b"{")
    label = f'{LABEL}="{replica}"'.encode()
    if brace and b" " not in name:
        return b"%s{%s,%s" % (name, label, rest)
    name, _, value = sample.partition(b" ")
    return b"%s{%s} %s" % (name, label, value)
