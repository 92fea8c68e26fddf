"""slime's debug dumps: torch files, one per rollout, loaded with `weights_only` so that no code in them runs.

A train dump has `rollout_log_probs` of the inference engine and `log_probs` of the trainer, pi_old; a rollout dump has
the former alone and gives no gap. Facts from slime at 624b824 (format_version 2: one file with `samples`) and from
0.3.1 (one file per rank with `rollout_data`, a dict of columns).
"""

import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy_monitor.client.files.needed import needed
from offpolicy_monitor.client.files.record import OTHERWISE, Bad, Item, Unfinished, Unreadable
from offpolicy_monitor.client.files.rows import Array, Row, check_lengths, marks, records

COLUMNS = {"rollout_log_probs": "sampling_logprobs", "log_probs": "old_logprobs", "advantages": "advantages"}
HINT = "dump it with --save-debug-train-data (or --dump-details), which has the trainer's log_probs too"


def read(step: int, paths: Sequence[Path]) -> Iterator[Item]:
    """The samples of one rollout, the files of all ranks together; a sample that several ranks have counts once."""
    size = sum(path.stat().st_size for path in paths)
    where = str(paths[0] if len(paths) == 1 else paths[0].parent / f"{step}_*.pt")
    try:
        rows = [_row(sample) for sample in _distinct(paths)]
    except (Unreadable, *OTHERWISE) as error:
        is_told = isinstance(error, Unreadable)
        yield Bad(where, str(error) if is_told else f"is not as slime writes it: {error!r:.200}", size)
        return
    if rows:
        yield from records(where, {"step": step}, rows, size)


def _distinct(paths: Sequence[Path]) -> list[Mapping[str, Any]]:
    """The samples of all files, each once: where several ranks dumped it, the first dump with the trainer's log-probs.

    A pipeline's other stages dump their samples without them.
    """
    samples: dict[object, Mapping[str, Any]] = {}
    for path in paths:
        for index, sample in enumerate(_samples(path)):
            name = sample.get("sample_index") if len(paths) > 1 else None
            key = (path, index) if name is None else name
            if key not in samples or "log_probs" not in samples[key]:
                samples[key] = sample
    return list(samples.values())


def _samples(path: Path) -> Sequence[Mapping[str, Any]]:
    if not _has_end(path):
        raise Unfinished(f"{path} is not whole yet: it has no end of a torch file")
    torch = _torch()
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise Unreadable(f"{path} holds more than tensors and plain values, and is not loaded: {reason}") from error
    except Exception as error:  # torch reads what it is given, and raises what that comes to
        raise Unreadable(f"{path} is no torch file that can be read: {error!r:.200}") from error
    if isinstance(payload, dict) and isinstance(payload.get("samples"), list):
        samples: list[Mapping[str, Any]] = payload["samples"]
        return samples
    if isinstance(payload, dict) and isinstance(payload.get("rollout_data"), dict):
        return _transposed(payload["rollout_data"])
    raise Unreadable(f"{path} has neither samples nor rollout_data")


def _has_end(path: Path) -> bool:
    """Whether the end of a zip archive is there, which is written last."""
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:
        return False


def _torch() -> Any:
    return needed("torch", "slime's dumps are torch files", "'offpolicy-monitor[server]'")


def _transposed(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Columns with one entry per sample as one dict per sample."""
    count = len(columns["response_lengths"])
    whole = {name: column for name, column in columns.items() if isinstance(column, list) and len(column) == count}
    samples = [{name: column[index] for name, column in whole.items()} for index in range(count)]
    for sample in samples:
        sample["sample_index"] = sample.pop("sample_indices", None)
    return samples


def _row(sample: Mapping[str, Any]) -> Row:
    tokens = {ours: _array(sample[theirs]) for theirs, ours in COLUMNS.items() if sample.get(theirs) is not None}
    if not {"sampling_logprobs", "old_logprobs"} <= tokens.keys():
        raise Unreadable(f"lacks {' and '.join(n for n in list(COLUMNS)[:2] if sample.get(n) is None)}: {HINT}")
    masks = [sample[name] for name in ("loss_masks", "loss_mask") if sample.get(name) is not None]
    length = len(tokens["old_logprobs"])
    tokens["mask"] = marks("loss_masks", _array(masks[0])) if masks else np.ones(length, bool)
    if sample.get("remove_sample"):
        tokens["mask"] = np.zeros(length, bool)
    check_lengths(tokens)
    reward = sample.get("rewards", sample.get("reward"))
    plain = isinstance(reward, int | float) and not isinstance(reward, bool)
    name = sample.get("sample_index", sample.get("index"))
    return Row(tokens, {"rewards": float(reward)} if plain else {}, None if name is None else f"sample{name}")


def _array(values: Any) -> Array:
    """A tensor or a list as float32 [T]."""
    try:
        if hasattr(values, "detach"):
            if values.is_complex():
                raise TypeError("complex numbers")
            values = values.detach().float().numpy()
        with np.errstate(over="ignore"):
            array = np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise Unreadable("a column holds something other than numbers") from error
    if array.ndim != 1:
        raise Unreadable("a column must have one number per token")
    return array
