"""What the service answers to questions as numpy values: series as columns, masks and weights as arrays.

Knows the shapes of answers, and not how they were asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from offpolicy_monitor.errors import ConfigurationError


def columns(answer: Mapping[str, Any], pandas: bool) -> Any:
    """A series as {"step": int64 [N], "minibatch": int64 [N], "value": float64 [N], NaN where absent}, or as a frame.

    Raises ConfigurationError where a frame is asked for and pandas is not installed.
    """
    series = {
        "step": np.array(answer["step"], np.int64),
        "minibatch": np.array(answer["minibatch"], np.int64),
        "value": np.array([np.nan if value is None else value for value in answer["value"]], np.float64),
    }
    if not pandas:
        return series
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise ConfigurationError("series(pandas=True) needs pandas: pip install pandas") from error
    return DataFrame(series)


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
