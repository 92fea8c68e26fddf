"""NeMo-RL's `train_data_step{N}.jsonl`: one sample per line, every value in a list of one, rows padded to the widest.

`generation_logprobs` are the inference engine's, `prev_logprobs` the trainer's recompute: pi_old. With
`force_on_policy_ratio` the latter are all zero, which is no measurement. Facts from NeMo-RL 0.7.0.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from offpolicy_monitor.client.files.lines import Line, lines
from offpolicy_monitor.client.files.record import Bad, Item, Unfinished, Unreadable
from offpolicy_monitor.client.files.rows import Array, Row, check_lengths, floats, fraction, marks, records

COLUMNS = {"generation_logprobs": "sampling_logprobs", "prev_logprobs": "old_logprobs"}


def read(step: int, paths: Sequence[Path]) -> Iterator[Item]:
    """The samples of one step, first what is wrong with any of them. Raises Unfinished at a torn last line."""
    (path,) = paths
    rows: list[Row] = []
    for line in lines(path):
        where = f"{path}:{line.number}"
        try:
            rows.append(_row(line))
        except Unreadable as error:
            if line.torn:
                raise Unfinished(f"{where}: the last line is not whole yet") from error
            yield Bad(where, str(error), 0)
    if rows:
        yield from records(str(path), {"step": step}, _without_zeros(rows), path.stat().st_size)


def _row(line: Line) -> Row:
    sample = {name: _only(value) for name, value in line.object(nan=True).items()}
    missing = [name for name in (*COLUMNS, "token_loss_mask") if not isinstance(sample.get(name), list)]
    if missing:
        raise Unreadable(f"lacks {', '.join(missing)}")
    tokens = {ours: floats(theirs, sample[theirs]) for theirs, ours in COLUMNS.items()}
    tokens["mask"] = marks("token_loss_mask", sample["token_loss_mask"])
    scalars: dict[str, float | int] = {}
    _add_advantages(sample.get("advantages"), tokens, scalars)
    check_lengths(tokens)
    reward = sample.get("filtered_rewards", sample.get("rewards"))
    if isinstance(reward, int | float):
        scalars["rewards"] = fraction("rewards", reward)
    if sample.get("sample_loss_mask") == 0:
        tokens["mask"][:] = False  # the sample is in the dump and not in the loss
    length = sample.get("input_lengths")
    end = length if type(length) is int and length > 0 else None
    return Row({name: array[:end] for name, array in tokens.items()}, scalars, f"sample{sample.get('idx')}")


def _only(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _add_advantages(value: Any, tokens: dict[str, Array], scalars: dict[str, float | int]) -> None:
    value = _only(value)
    if isinstance(value, list):
        tokens["advantages"] = floats("advantages", value)
    elif isinstance(value, int | float):
        scalars["advantages"] = fraction("advantages", value)


def _without_zeros(rows: Sequence[Row]) -> list[Row]:
    """The rows without a log-prob that is zero at every token under the mask of every row: it was not computed."""
    unmeasured = {
        name for name in COLUMNS.values() if not any(row.tokens[name][row.tokens["mask"]].any() for row in rows)
    }
    if not any(row.tokens["mask"].any() for row in rows):
        unmeasured = set()
    return [Row(_less(row.tokens, unmeasured), row.scalars, row.name) for row in rows]


def _less(columns: Mapping[str, Array], names: set[str]) -> dict[str, Array]:
    return {name: array for name, array in columns.items() if name not in names}
