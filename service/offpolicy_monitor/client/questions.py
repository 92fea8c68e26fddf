"""What the service answers to questions as numpy values: series as columns, masks and weights as arrays.

Knows the shapes of answers, and not how they were asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from offpolicy_monitor.errors import ConfigurationError

#: Fields whose values are words or times, also where a series has none.
WORDS: Final = frozenset({"verdict", "received_at"})


def columns(answer: Mapping[str, Any], pandas: bool) -> Any:
    """One series as {"step": int64 [N], "minibatch": int64 [N], "value": [N]}, or as a frame of these.

    Values are float64, NaN where absent; words and times are an object array of str, None where absent. Raises
    ConfigurationError where a frame is asked for and pandas is not installed.
    """
    series = {
        "step": np.array(answer["step"], np.int64),
        "minibatch": np.array(answer["minibatch"], np.int64),
        "value": _values(answer["field"], answer["value"]),
    }
    return _frame(series) if pandas else series


def several(answer: Mapping[str, Any], pandas: bool) -> Any:
    """Several series by their fields, each as columns; or one frame with a row per gradient step that any of them has.

    The frame has columns step and minibatch, and one per field. Raises ConfigurationError as `columns` does.
    """
    if not pandas:
        return {series["field"]: columns(series, False) for series in answer["series"]}
    found = {
        series["field"]: dict(zip(zip(series["step"], series["minibatch"], strict=True), series["value"], strict=True))
        for series in answer["series"]
    }
    steps = sorted({step for values in found.values() for step in values})
    named = {name: _values(name, [values.get(step) for step in steps]) for name, values in found.items()}
    index = np.array(steps, np.int64).reshape(-1, 2)
    return _frame({"step": index[:, 0], "minibatch": index[:, 1], **named})


def _values(field: str, values: Sequence[float | str | None]) -> np.ndarray:
    if field in WORDS or any(isinstance(value, str) for value in values):
        return np.array(values, object)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _frame(columns: Mapping[str, np.ndarray]) -> Any:
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise ConfigurationError("series(pandas=True) needs pandas: pip install pandas") from error
    return DataFrame(columns)


def with_arrays(answer: dict[str, Any], shape: Sequence[int]) -> dict[str, Any]:
    """An evaluation whose masks and weights are numpy arrays.

    keep_sequences [S] bool; keep_tokens bool and weights float32: [S, L] where `shape` of the log-probs was padded
    (0 beyond a length), else a list of S arrays.
    """
    for row in answer.get("methods", ()):
        if "keep_sequences" in row:
            row["keep_sequences"] = np.array(row["keep_sequences"], np.bool_)
        for name, dtype in (("keep_tokens", np.bool_), ("weights", np.float32)):
            if name in row:
                row[name] = _rows([np.array(entries, dtype) for entries in row[name]], shape)
    return answer


def _rows(rows: list[np.ndarray], shape: Sequence[int]) -> Any:
    if len(shape) != 2:
        return rows
    padded = np.zeros(tuple(shape), rows[0].dtype if rows else np.bool_)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
