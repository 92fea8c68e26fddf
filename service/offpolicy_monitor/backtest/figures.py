"""Figures of a history: the columns of a file as what rules look at, and how each of them came to be.

Columns by our own paths, before which a monitor's logger has a prefix, are taken as they are, others by the table of
peers. Where a gap has k1 and no k3, k1 stands in for k3; a k3 of 0 among values with few decimals is below what was
printed, and so absent.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from offpolicy_monitor import peers
from offpolicy_monitor.backtest.errors import BadHistory
from offpolicy_monitor.backtest.tables import Table
from offpolicy_monitor.errors import quotable
from offpolicy_monitor.figures import is_known
from offpolicy_monitor.vocabulary import GAPS

#: Decimals from which on a value was not cut for people: 0.0 is then 0.
PRINTED_DECIMALS: Final = 6
Columns = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Figures:
    """steps: ascending; columns: path -> step -> value; notes: what was read as what, a line each.

    other: columns that are none of the figures that rules look at.
    """

    steps: Sequence[int]
    columns: Mapping[str, Mapping[int, float]]
    notes: Sequence[str]
    other: Sequence[str]

    def at(self, step: int) -> dict[str, float]:
        """The figures of one step."""
        return {path: values[step] for path, values in self.columns.items() if step in values}


def figures_of(tables: Iterable[Table], wanted: Collection[str]) -> Figures:
    """What `tables` hold of the `wanted` figures. Raises BadHistory where no column is any figure of ours."""
    steps, columns, notes, other = set[int](), Columns(), list[str](), list[str]()
    looked_at = {*wanted, *(f"gaps.{gap}.k1" for gap in GAPS)}
    for table in tables:
        steps |= table.steps
        own = {name: name.removeprefix(peers.OURS) for name in table.columns}
        named = peers.named([name for name, path in own.items() if path not in looked_at], looked_at)
        for name in table.columns:
            metric = named.get(name)
            if metric is None and own[name] not in looked_at:
                other.append(name)
                continue
            path, sign = (metric.path, metric.sign) if metric else (own[name], 1)
            if path in columns:
                notes.append(f"{quotable(name)} is left out: {path} is there already")
                continue
            columns[path] = {step: sign * value for step, value in table.numbers(name).items()}
            if metric:
                notes.append(_note(name, metric))
    for gap in GAPS:
        notes += _with_k3(columns, gap)
    if not columns and not any(is_known(name.removeprefix(peers.OURS)) for name in other):
        names = ", ".join(map(quotable, other[:8])) or "none"
        raise BadHistory(
            f"no column is a figure of ours, by its path or by the name that a framework has for it: {names}"
        )
    return Figures(sorted(steps), {path: columns[path] for path in columns if path in wanted}, notes, other)


def _note(name: str, metric: peers.Metric) -> str:
    sign = "-" if metric.sign < 0 else ""
    told = "" if metric.is_same else f" ({metric.same})"
    return f"{quotable(name)} is {sign}{metric.path} as {metric.peer} defines it{told}"


def _with_k3(columns: Columns, gap: str) -> Iterable[str]:
    """The k3 of a gap: from k1 where there is none, and without zeros that are below what was printed."""
    k1, k3 = (f"gaps.{gap}.{name}" for name in ("k1", "k3"))
    if not columns.get(k3) and columns.get(k1):
        columns[k3] = {step: abs(value) for step, value in columns[k1].items()}
        yield f"{k1} stands in for {k3}: in the mean they are the same, step by step k1 is noisier"
    values = columns.get(k3, {})
    zeros = [step for step, value in values.items() if value == 0]
    if zeros and len(zeros) < len(values) and _are_printed(values.values()):
        columns[k3] = {step: value for step, value in values.items() if value != 0}
        yield f"{k3} is below what was printed at {len(zeros)} steps, which is no 0: absent there"


def _are_printed(values: Iterable[float]) -> bool:
    return all(round(value, PRINTED_DECIMALS) == value for value in values)
