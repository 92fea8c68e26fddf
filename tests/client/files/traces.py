"""Folders of traces as prime-rl's file monitor, orchestrator and trainer write them, of the sequences of `dumps`."""

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import zstandard

from tests.client.files import dumps

Line = dict[str, Any]
# What the file monitor rounds to by default.
DECIMALS = 4
ORCHESTRATOR, TRAINER = "annotations/orchestrator", "annotations/trainer"


def trace_ids(step: int) -> list[str]:
    return [f"trace-{step}-{index}" for index in range(len(dumps.LENGTHS))]


def rounded(values: Iterable[float]) -> list[float]:
    return [round(value, DECIMALS) for value in values]


def node(parent: int | None, mask: Sequence[bool], logprobs: Sequence[float]) -> Line:
    """A message; what is None is left out, as `Episode.to_record` leaves it out."""
    shape: Line = {"message": {"role": "assistant" if any(mask) else "user"}, "sampled": any(mask)}
    tokens = {"token_ids": list(range(len(mask))), "mask": list(mask), "logprobs": rounded(logprobs)}
    return {**({} if parent is None else {"parent": parent}), **shape, **tokens}


def episode(step: int, version: int | None = None) -> Line:
    """One episode of all sequences of a step: a prompt, and the answer behind a token of its template."""
    policy = {} if version is None else {"policy": {"start": version, "end": version + 1}}
    traces = [
        {
            "id": trace,
            "nodes": [
                node(None, [False] * (dumps.PROMPT - 1), []),
                node(0, [False] + [True] * len(answer["mu"]), answer["mu"]),
            ],
            "rewards": {"passed": {"score": float(index), "weight": 1.0}, "judged": None},
            "info": {"kind": "train"},
        }
        for index, (trace, answer) in enumerate(zip(trace_ids(step), dumps.answers(step), strict=True))
    ]
    run = {"type": "train", "id": "run", "work": {"type": "train", "step": step, **policy}}
    return {"id": f"episode-{step}", "run": run, "ok": True, "errors": [], "traces": traces}


def shipped(step: int) -> list[Line]:
    """What the orchestrator says when it ships a batch."""
    return [
        {
            "version": 1,
            "trace_id": trace,
            "info": {"effective": True, "ship": {"step": step, "time": 1.0}, "advantage": answer["advantages"][0]},
            "branches": [{"index": 0, "advantages": dumps.padded(answer["advantages"], 0.0)}],
        }
        for trace, answer in zip(trace_ids(step), dumps.answers(step), strict=True)
    ]


def trained(step: int) -> list[Line]:
    """What the trainer says of each sequence: null outside its loss mask, and in the first position."""
    return [
        {
            "version": 1,
            "trace_id": trace,
            "info": {},
            "branches": [
                {
                    "index": 0,
                    "trainer_logprobs": dumps.padded(rounded(answer["old"]), None),
                    "entropies": dumps.padded([0.5] * len(answer["old"]), None),
                    "is_masked": dumps.padded([False] * len(answer["old"]), None),
                }
            ],
        }
        for trace, answer in zip(trace_ids(step), dumps.answers(step), strict=True)
    ]


def append(root: Path, name: str, lines: Iterable[Line], chunk: int = 0, indexed: bool = True) -> Path:
    """Append to a stream, and to its index, as `FileMonitor` does: the stream first."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    path, rows = folder / f"{chunk:05d}.jsonl", []
    with path.open("ab") as file:
        for line in lines:
            address = {"chunk": chunk, "offset": file.tell()}
            ids = [trace["id"] for trace in line.get("traces", [])]
            rows.append({"trace_ids": ids, **address} if ids else {**_scalars(line), **address})
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    if indexed:
        with folder.with_name(f"{folder.name}.index.jsonl").open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _scalars(line: Line) -> Line:
    return {"trace_id": line["trace_id"], "info": line["info"]}


def write(root: Path, step: int, chunk: int = 0, indexed: bool = True, ended: bool = True) -> list[Path]:
    """A step's episode, its shipping, and what the trainer wrote of it, but for its last sequence unless `ended`."""
    written = {"stream": [episode(step, max(step - 3, 0))], ORCHESTRATOR: shipped(step), TRAINER: trained(step)}
    if not ended:
        written[TRAINER].pop()
    return [append(root, name, lines, chunk, indexed) for name, lines in written.items()]


def seal(path: Path, frame: int = 300) -> Path:
    """Compress a chunk into zstd's seekable format, with frames of so many bytes, and remove the plain file."""
    content, packed, table = path.read_bytes(), b"", b""
    for start in range(0, len(content), frame):
        part = content[start : start + frame]
        made = zstandard.ZstdCompressor(level=3).compress(part)
        packed += made
        table += struct.pack("<III", len(made), len(part), 0)
    table += struct.pack("<IBI", len(table) // 12, 0x80, 0x8F92EAB1)
    sealed = path.with_name(path.name + ".zst")
    sealed.write_bytes(packed + struct.pack("<II", 0x184D2A5E, len(table)) + table)
    path.unlink()
    return sealed
