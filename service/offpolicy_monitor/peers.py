"""Metrics of other frameworks beside our figures: rows of peers.csv, of which docs/methods.md shows the same tables.

The table is used both ways: to read the files of other frameworks, and to write our figures under their names.
A row whose metric has conditions in brackets, or whose figure is put together of several, is for people: no file says
which condition holds, so no value is taken from it.
"""

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

#: What a logger has before the paths of our own figures.
OURS: Final = "offpolicy/"
_METRIC: Final = re.compile(r"`([^`]+)`")
_FIGURE: Final = re.compile(r"`(-?)([\w.]+)`(?!\s*over)")


@dataclass(frozen=True)
class Metric:
    """A row: what `peer` calls it, the path of ours, the sign of ours against theirs, and where they differ."""

    peer: str
    name: str
    path: str
    sign: int
    same: str

    @property
    def is_same(self) -> bool:
        """Whether both are equal up to rounding, whatever the batch."""
        return self.same == "same"


@cache
def rows() -> Sequence[tuple[str, str, str, str]]:
    """The table as it is shown: framework, its metric, ours, whether they are the same."""
    text = files(__spec__.parent).joinpath("peers.csv").read_text(encoding="utf-8")
    return [(peer, theirs, ours, same) for peer, theirs, ours, same in list(csv.reader(text.splitlines()))[1:]]


@cache
def metrics() -> Sequence[Metric]:
    """The rows that a value can be taken from."""
    found = []
    for peer, theirs, ours, same in rows():
        name, figure = _METRIC.fullmatch(theirs), _FIGURE.match(ours)
        if name and figure:
            found.append(Metric(peer, name[1], figure[2], -1 if figure[1] else 1, same))
    return found


def named(columns: Iterable[str], wanted: Collection[str]) -> Mapping[str, Metric]:
    """Column -> metric, for the columns that one framework names so, and whose figures are `wanted`.

    The framework is that of which most columns are known; loggers may put anything before a metric, and files may have
    other letters in place of its slashes.
    """
    by_peer: dict[str, dict[str, Metric]] = {}
    for column in columns:
        for metric in metrics():
            if metric.path in wanted and _is(column, metric.name):
                known = by_peer.setdefault(metric.peer, {})
                if column not in known or len(metric.name) > len(known[column].name):
                    known[column] = metric
    return max(by_peer.values(), key=len, default={})


def _is(column: str, metric: str) -> bool:
    ends, plain = f"/{column}".endswith(f"/{metric}"), _plain(metric)
    return ends or (_plain(column) == plain and "/" not in column)


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)
