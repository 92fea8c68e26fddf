"""What reads bytes that others wrote, as rows: what is read by what, and what it may raise instead.

A reader gives what it likes, or raises one of `refusals`, whose text can be shown; anything else is a finding.
Shared by the bounded run of the tests, by `make fuzz` and by the corpus, whose folders have the targets' names.
"""

import asyncio
import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from offpolicy_monitor.backtest import tables
from offpolicy_monitor.backtest.command import overrides_of
from offpolicy_monitor.backtest.errors import BadHistory
from offpolicy_monitor.backtest.figures import figures_of
from offpolicy_monitor.client.files import prime_rl_traces
from offpolicy_monitor.client.files.formats import FORMATS
from offpolicy_monitor.client.files.post import body_of
from offpolicy_monitor.client.files.record import Item, Record, Unfinished, Unreadable
from offpolicy_monitor.client.files.sealed import open_sealed
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.pipeline.reduced import accepted
from offpolicy_monitor.server.routes.changes import read_changes
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store.rows.cursors import decode_cursor
from offpolicy_monitor.summary import from_bytes, to_bytes
from offpolicy_monitor.summary.stored import StoredSummaryError
from offpolicy_monitor.summary.tables.worst import OfStep, first_of
from offpolicy_monitor.wire.decode import decode_batch, decode_evaluation
from offpolicy_monitor.wire.digest import content_digest
from offpolicy_monitor.wire.encoding import decompress
from offpolicy_monitor.wire.message import Message, Reduced
from starlette.requests import Request

from tests.fuzz import seeds
from tests.fuzz.mean import FILES
from tests.wire.bodies import JSON, LIMITS, SAFETENSORS, frame_body


@dataclass(frozen=True)
class Target:
    """One reader."""

    name: str
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]
    is_json: bool = False

    def takes(self, data: bytes) -> bool:
        """Whether it reads the bytes; False where it refuses them, in words that can be shown."""
        try:
            self.read(data)
        except self.refusals as refused:
            assert str(refused).encode()
            return False
        return True


def _body(media_type: str, data: bytes) -> None:
    """Both kinds of posts: where neither is refused, both are read."""
    refused = []
    for decode in (decode_batch, decode_evaluation):
        try:
            decoded = decode(data, media_type, LIMITS)
        except Refusal as refusal:
            refused.append(refusal)
            continue
        if isinstance(decoded, Message):
            assert len(content_digest(decoded)) == 16
    if len(refused) == 2:
        raise refused[0]


def _encoded(encoding: str, data: bytes) -> None:
    decompress(data, encoding, LIMITS)


def _posted_summary(data: bytes) -> None:
    """The content of a summary, which is compressed here: a mutated frame of zstd is none."""
    stored = data[:1] + zstandard.compress(data[1:], 1)
    decoded = decode_batch(frame_body({"step": 1}, summary=np.frombuffer(stored, np.uint8)), SAFETENSORS, LIMITS)
    assert isinstance(decoded, Reduced)
    summary = accepted(decoded, PRESETS)
    _figures(to_bytes(summary))


def _stored(data: bytes) -> None:
    from_bytes(data[:1] + zstandard.compress(data[1:], 1))


def _figures(stored: bytes) -> None:
    """What is accepted merges, can be stored and has figures that JSON holds."""
    summary = from_bytes(stored)
    json.dumps(summary.merge(summary).figures(), allow_nan=False)
    answers = [one.answer() for one in first_of([OfStep.of(1, 0, summary)])]
    json.dumps(answers, allow_nan=False)
    again = from_bytes(to_bytes(summary))
    assert again.worst == summary.worst
    assert [one.answer() for one in first_of([OfStep.of(1, 0, again)])] == answers


def _cursor(data: bytes) -> None:
    decode_cursor(data.decode("latin-1"), 2)


def _changes(data: bytes) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    request = Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)
    asyncio.run(read_changes(request, _settings()))


@cache
def _settings() -> Settings:
    return Settings(_env_file=None)


@cache
def _folder() -> Path:
    """Where files are written to be read; one per process, gone at its end."""
    shared = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="fuzz-", dir=shared if shared.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _written(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _rules(data: bytes) -> None:
    overrides_of(_written("rules.json", data))


def _history(name: str, data: bytes) -> None:
    figures_of([tables.read(_written(name, data))], ["gaps.mismatch.k3", "gaps.mismatch.k1"])


def _dump(form: str, name: str, data: bytes) -> None:
    """A file of a dump: what is read of it can be posted."""
    path = _written(f"{form}/{name}", data)
    for unit in FORMATS[form].units([path]):
        _posts(FORMATS[form].read(unit))


def _posts(items: Iterable[Item]) -> None:
    """Records make bodies; where something was bad, Unreadable with the reason."""
    bad = []
    for item in items:
        if isinstance(item, Record):
            assert len(item.order) == 3
            with suppress(Refusal):
                body_of(item, None)
        else:
            bad.append(item.reason)
    if bad:
        raise Unreadable("; ".join(bad))


def _traces(data: bytes) -> None:
    """Episodes, what was shipped and what was trained, three files with a byte between them that no JSON has."""
    parts = [*data.split(FILES), b"", b""][:3]
    for name, part in zip(("stream", "annotations/orchestrator", prime_rl_traces.TRAINER), parts, strict=True):
        _written(f"traces/{name}/00000.jsonl", part)
    traces = prime_rl_traces.Traces(_folder() / "traces")
    for unit in traces.units(None):
        _posts(traces.read(unit))


def _sealed(data: bytes) -> None:
    with open_sealed(_written("sealed.jsonl.zst", data)) as file:
        for line in file:
            assert len(line) <= file.tell()


WIRE, DUMPS = (Refusal,), (Unfinished, Unreadable)
TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        Target("json", partial(_body, JSON), WIRE, seeds.json_bodies, is_json=True),
        Target("frame", partial(_body, SAFETENSORS), WIRE, seeds.frames),
        Target("zstd", partial(_encoded, "zstd"), WIRE, seeds.zstd),
        Target("gzip", partial(_encoded, "gzip"), WIRE, seeds.gzip_members),
        Target("summary", _posted_summary, WIRE, seeds.summaries),
        Target("stored", _stored, (StoredSummaryError,), seeds.summaries),
        Target("cursor", _cursor, WIRE, seeds.cursors),
        Target("changes", _changes, WIRE, seeds.changes, is_json=True),
        Target("rules", _rules, (BadHistory,), seeds.rules, is_json=True),
        Target("csv", partial(_history, "history.csv"), (BadHistory,), seeds.csv_histories),
        Target("history", partial(_history, "history.json"), (BadHistory,), seeds.json_histories, is_json=True),
        Target("jsonl", partial(_dump, "jsonl", "a.jsonl"), DUMPS, seeds.jsonl_dumps, is_json=True),
        Target("nemo-rl", partial(_dump, "nemo-rl", "train_data_step1.jsonl"), DUMPS, seeds.nemo_rl, is_json=True),
        Target("prime-rl", partial(_dump, "prime-rl", "step_1/rank_0.jsonl"), DUMPS, seeds.prime_rl, is_json=True),
        Target("traces", _traces, DUMPS, seeds.traces, is_json=True),
        Target("sealed", _sealed, (Unreadable,), seeds.sealed),
        Target("safetensors", partial(_dump, "safetensors", "a.safetensors"), DUMPS, seeds.frames),
        Target("slime", partial(_dump, "slime", "1.pt"), DUMPS, seeds.slime),
    )
}
