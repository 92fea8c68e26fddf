"""A run's history: figures of its training steps as columns, asked for in parts and written as CSV.

By step: of the last gradient step of each. Whatever the service answers, no text but names of figures is in it: nothing
that a spreadsheet takes for a formula, so that numbers keep their signs.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final

from offpolicy_monitor.client.read import Reader, path
from offpolicy_monitor.vocabulary import GAPS

#: Fields of one question, and steps of its answer.
FIELDS, STEPS = 31, 10_000
#: What a step has beside its figures, for rules to look at.
BESIDE: Final = ("policy_version",)
#: The path of a figure that has no part of its own for each run or step.
_PATH: Final = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*")
Columns = dict[str, dict[int, float]]


def headline_paths(service: Reader) -> list[str]:
    """The figures that are kept of every step, however old: those that can be read whole."""
    patterns = [figure["path"] for figure in service.get("/v1/figures")["figures"] if figure["headline"]]
    paths = [pattern.replace("{gap}", gap) for pattern in patterns for gap in (GAPS if "{gap}" in pattern else ("",))]
    return [*BESIDE, *filter(_PATH.fullmatch, dict.fromkeys(paths))]


def history(service: Reader, run: str, fields: Sequence[str]) -> Columns:
    """field -> step -> value, of all steps that count."""
    columns: Columns = {field: {} for field in fields}
    last = service.get(path(run))["last_step"]
    for first, begin in product(range(0, -1 if last is None else last + 1, STEPS), range(0, len(fields), FIELDS)):
        # One more field than is wanted: of a single one the answer has another form.
        asked = [*fields[begin : begin + FIELDS], "attempt"]
        query = {"field": asked, "by": "step", "points": STEPS, "from": first, "to": first + STEPS - 1}
        for series in service.get(path(run, "series"), query)["series"][:-1]:
            values = zip(series["step"], series["value"], strict=True)
            columns[series["field"]] |= {
                step: value for step, value in values if _is_number(step) and _is_number(value)
            }
    return columns


def as_csv(columns: Mapping[str, Mapping[int, float]]) -> str:
    """A row per step, a column per figure that any step has."""
    known = {name: values for name, values in columns.items() if values}
    steps = sorted({step for values in known.values() for step in values})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("step", *known))
    writer.writerows([step, *_cells(known.values(), step)] for step in steps)
    return text.getvalue()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cells(columns: Iterable[Mapping[int, float]], step: int) -> list[object]:
    return [values.get(step, "") for values in columns]
