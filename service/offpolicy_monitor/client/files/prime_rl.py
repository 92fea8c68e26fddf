"""prime-rl's token exports: `step_N/rank_R.jsonl`, a sequence per line, and a marker STABLE when all ranks are done.

Later releases write trace annotations instead (`prime_rl_traces`). A step is one optimizer step, so that
`trainer_logprobs` are those of the current policy; there is no recompute before it and so no pi_old. Facts from
prime-rl 0.8.1.dev67 (schema_version 1).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy_monitor.client.files.lines import Line, lines
from offpolicy_monitor.client.files.prime_rl_traces import TracedStep
from offpolicy_monitor.client.files.record import Bad, Item, Unfinished, Unreadable
from offpolicy_monitor.client.files.rows import Row, check_lengths, floats, marks, records
from offpolicy_monitor.client.files.units import Unit

SCHEMA_VERSION = 1
COLUMNS = {
    "inference_logprobs": "sampling_logprobs",
    "trainer_logprobs": "logprobs",
    "advantages": "advantages",
    "entropy": "entropy",
}


def read_unit(unit: Unit) -> Iterator[Item]:
    """The sequences of one step, in either layout of prime-rl's."""
    if isinstance(unit, TracedStep) and unit.traces is not None:
        return unit.traces.read(unit)
    return read(unit.step, unit.paths)


def read(step: int, paths: Sequence[Path]) -> Iterator[Item]:
    """The sequences of one step, all ranks together, first what is wrong with any of them."""
    rows: list[Row] = []
    end = sum(path.stat().st_size for path in paths)
    for path in paths:
        for line in lines(path):
            where = f"{path}:{line.number}"
            try:
                rows.append(_row(step, line))
            except Unreadable as error:
                if line.torn:
                    raise Unfinished(f"{where}: the last line is not whole yet") from error
                yield Bad(where, str(error), 0)
    if rows:
        yield from records(str(paths[0].parent), {"step": step}, rows, end)


def _row(step: int, line: Line) -> Row:
    value = line.object(nan=True)
    if value.get("schema_version") != SCHEMA_VERSION:
        raise Unreadable(f"has schema_version {value.get('schema_version')!r}, and {SCHEMA_VERSION} is known")
    if value.get("step") != step:
        raise Unreadable(f"is of step {value.get('step')!r} in the folder of step {step}")
    missing = [name for name in (*COLUMNS, "loss_mask") if not isinstance(value.get(name), list)]
    if missing:
        raise Unreadable(f"lacks {', '.join(missing)}")
    tokens = {ours: floats(theirs, value[theirs]) for theirs, ours in COLUMNS.items()}
    tokens["mask"] = marks("loss_mask", value["loss_mask"])
    check_lengths(tokens)
    tokens["mask"] &= _sampled(value, len(tokens["mask"]))
    return Row(tokens, name=f"rank{value.get('rank')}/{value.get('export_sequence_idx')}")


def _sampled(value: Mapping[str, Any], length: int) -> Any:
    """Which tokens the policy sampled: all, or with weight streams those that weigh in rl or ref_kl.

    Tokens of the cross-entropy stream alone come from elsewhere, and their sampling log-probs mean nothing.
    """
    streams = [value.get(name) for name in ("rl_weights", "ref_kl_weights")]
    if not _present(streams[0]):
        return np.ones(length, bool)
    weights = [floats("rl_weights or ref_kl_weights", stream) for stream in streams if _present(stream)]
    if any(len(weight) != length for weight in weights):
        raise Unreadable("rl_weights or ref_kl_weights are not as long as loss_mask")
    return np.any([np.nan_to_num(weight) != 0 for weight in weights], axis=0)


def _present(stream: Any) -> bool:
    return isinstance(stream, list) and any(entry is not None for entry in stream)
