"""Tables: a file of figures over steps as columns by name, whatever wrote it. What a column means is not known here.

| file | as |
|---|---|
| CSV, also with tabs or semicolons | a column of steps and one for each figure, as W&B and TensorBoard export |
| CSV with `tag`, `step` and `value` | a row for each value: TensorBoard's data frames |
| JSON | a list of objects, an object of lists, `steps` and `figures`, or TensorBoard's `[wall time, step, value]` |
| JSON lines | an object per step |

A step may come in several rows, as W&B writes it: later values win, also those of a run that began again.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from offpolicy_monitor.backtest.errors import BadHistory
from offpolicy_monitor.errors import quotable, quoted

#: Names of the column of steps, the first that is there counts; in lower case, and whatever stands before a slash.
STEP_NAMES: Final = ("training_step", "global_step", "_step", "step", "steps", "iteration")
#: Texts for a value that is not there.
ABSENT: Final = frozenset({"", "null", "none", "nan", "na", "n/a", "inf", "-inf", "infinity", "-infinity"})
#: The tag in the name of a file that TensorBoard's page wrote: run-NAME-tag-TAG.csv.
_TAG: Final = re.compile(r"(?:^|-)tag-(?P<tag>.+)$")
#: What W&B's page adds to a metric: the run's name before it, and its range within a point of the plot.
_OF_RUN, _RANGE = " - ", re.compile(r"__(MIN|MAX)$|__step$")
#: The row of names; what stands between quotes, delimiters and line breaks too, is text.
_HEAD, _QUOTED = re.compile(r'(?:"[^"]*"|[^"\n]+)*'), re.compile(r'"[^"]*"')

#: The elements of TensorBoard's JSON, and the columns of a file with a row for each value.
_OF_TAG: Final = ("wall time", "step", "value")
_LONG: Final = frozenset({"tag", "metric", "run", "step", "value", "wall time", "wall_time"})

#: The number of a line, or of an element of a list, and its cells.
Row = tuple[str, Mapping[str, Any]]


@dataclass
class Table:
    """columns: name -> step -> what the file has there, and where that is; not what is absent.

    profile: what the file says is normal for the run, if it does.
    """

    columns: dict[str, dict[int, tuple[Any, str]]] = field(default_factory=dict)
    steps: set[int] = field(default_factory=set)
    profile: str | None = None

    def put(self, step: int, column: str, value: Any, place: str) -> None:
        """Enter one value."""
        cells = self.columns.setdefault(column, {})
        if not _is_absent(value):
            cells[step] = value, place

    def numbers(self, column: str) -> dict[int, float]:
        """step -> value of one column. Raises BadHistory for what is no number: other columns may hold any text."""
        found = {step: _number(value, column, place) for step, (value, place) in self.columns[column].items()}
        return {step: number for step, number in found.items() if number is not None}


def read(path: Path) -> Table:
    """The table in a file. Raises BadHistory for what is none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadHistory(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadHistory(f"{path}: byte {error.start} is no text in UTF-8") from error
    if not text.strip():
        raise BadHistory(f"{path} is empty")
    table = Table()
    if text.lstrip()[0] in "[{":
        _read_json(table, text, path)
    else:
        try:
            _fill(table, _csv_rows(text, path), path)
        except csv.Error as error:
            raise BadHistory(f"{path} is no CSV: {error}") from error
    if not table.steps:
        raise BadHistory(f"{path} has no step")
    return table


def _read_json(table: Table, text: str, path: Path) -> None:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        _fill(table, _json_lines(text, path, error), path)
        return
    except (ValueError, RecursionError) as error:
        raise BadHistory(f"{path}: no JSON that can be read: {error}") from error
    if isinstance(document, dict) and "figures" in document:
        table.profile = document.get("profile")
        _fill_columns(table, document.get("steps"), document["figures"], path, "figures.")
    elif isinstance(document, dict):
        name = _step_name(document, f"{path}")
        figures = {key: value for key, value in document.items() if key != name}
        _fill_columns(table, document[name], figures, path, "")
    elif document and all(isinstance(row, list) and len(row) == 3 for row in document):
        _fill(table, ((f"element {n}", dict(zip(_OF_TAG, row, strict=True))) for n, row in enumerate(document)), path)
    else:
        _fill(table, ((f"element {n}", _object(row, f"{path}, element {n}")) for n, row in enumerate(document)), path)


def _json_lines(text: str, path: Path, whole: json.JSONDecodeError) -> Iterator[Row]:
    """One object per line; where not even the first is one, the error of the whole document tells more."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                at = (whole.lineno, whole.msg) if number == 1 else (number, error.msg)
                raise BadHistory(f"{path}, line {at[0]}: no JSON: {at[1]}") from error
            except (ValueError, RecursionError) as error:
                raise BadHistory(f"{path}, line {number}: no JSON that can be read: {error}") from error
            yield f"line {number}", _object(row, f"{path}, line {number}")


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadHistory(f"{place}: an object of figures is expected, not {quoted(value)}")
    return value


def _csv_rows(text: str, path: Path) -> Iterator[Row]:
    head = _HEAD.match(text.lstrip())
    delimiter = max(",\t;", key=_QUOTED.sub("", head[0] if head else "").count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    names = next(row for row in reader if row)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadHistory(f"{path}, line {reader.line_num}: column {quoted(twice)} is there twice")
    for row in reader:
        if row and len(row) != len(names):
            raise BadHistory(f"{path}, line {reader.line_num}: {len(row)} cells under {len(names)} columns")
        if row:
            yield f"line {reader.line_num}", dict(zip(names, row, strict=True))


def _fill(table: Table, rows: Iterable[Row], path: Path) -> None:
    step_name: str | None = None
    for line, row in rows:
        place = f"{path}, {line}"
        if step_name is None or step_name not in row:
            step_name = _step_name(row, place)
        step = _step(row[step_name], step_name, place)
        if step is None:
            continue
        table.steps.add(step)
        for name, value in _cells(row, step_name, path):
            table.put(step, name, value, place)


def _cells(row: Mapping[str, Any], step_name: str, path: Path) -> Iterator[tuple[str, Any]]:
    """The figures of a row; one that has a tag and a value is the figure of that tag."""
    lower = {name.lower(): name for name in row}
    if "value" in lower and lower.keys() <= _LONG:
        tag = row.get(lower.get("tag", lower.get("metric", ""))) or _tag_of(path)
        yield str(tag), row[lower["value"]]
        return
    for name, value in row.items():
        if name != step_name and not _RANGE.search(name):
            yield _bare(name), value


def _tag_of(path: Path) -> str:
    found = _TAG.search(path.stem)
    return found["tag"] if found else path.stem


def _bare(name: str) -> str:
    """A metric without the run that W&B's page puts before it."""
    return name.rsplit(_OF_RUN, 1)[-1]


def _fill_columns(table: Table, steps: Any, figures: Any, path: Path, prefix: str) -> None:
    if not isinstance(steps, list) or not isinstance(figures, dict):
        raise BadHistory(f"{path}: `steps` is a list, and figures are lists by name")
    numbers = [_step(value, "steps", f"{path}, steps[{index}]") for index, value in enumerate(steps)]
    if None in numbers:
        raise BadHistory(f"{path}, steps[{numbers.index(None)}]: there is no step")
    for name, values in figures.items():
        if not isinstance(values, list) or len(values) != len(steps):
            told = len(values) if isinstance(values, list) else quoted(values)
            raise BadHistory(
                f"{path}, {prefix}{quotable(name)}: {len(steps)} values are expected, one per step, not {told}"
            )
        for index, (step, value) in enumerate(zip(numbers, values, strict=True)):
            if step is not None:
                table.steps.add(step)
                table.put(step, name, value, f"{path}, {prefix}{quotable(name)}[{index}]")


def _step_name(row: Mapping[str, Any], place: str) -> str:
    for wanted in STEP_NAMES:
        for name in row:
            if name.lower().rsplit("/", 1)[-1] == wanted:
                return name
    names = ", ".join(map(quotable, list(row)[:8]))
    raise BadHistory(f"{place}: no column of steps (step, _step, global_step, ...) among {names}")


def _step(value: Any, name: str, place: str) -> int | None:
    """A step; None where the row has none."""
    number = _number(value, name, place)
    if number is None:
        return None
    if number < 0 or number != int(number):
        raise BadHistory(f"{place}: {quotable(name)} is {quoted(value)}, which is no step: 0, 1, 2, ...")
    return int(number)


def _number(value: Any, name: str, place: str) -> float | None:
    """A finite number, as float64 has them; None where there is none."""
    if _is_absent(value):
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
    except OverflowError:
        return None
    except (TypeError, ValueError) as error:
        raise BadHistory(f"{place}: {quotable(name)} is {quoted(value)}, which is no number") from error
    return number if math.isfinite(number) else None


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in ABSENT)
