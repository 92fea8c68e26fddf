"""Inputs that are right, of which wrong ones are made: a few small ones for each target."""

import gzip
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import zstandard
from offpolicy_monitor.client.reduce import reduced
from offpolicy_monitor.store.rows.cursors import encode_cursor
from offpolicy_monitor.summary.stored import version_3
from offpolicy_monitor.wire import frame

from tests.client.files import dumps
from tests.client.files import traces as folders
from tests.fixtures.reduced import arrays_of, envelope_of, joined


def json_bodies() -> Sequence[bytes]:
    values = [[-1.0, -2.5], [-0.5]]
    packed = {"lengths": [2, 1], "sampling_logprobs": [-1, -2, None], "old_logprobs": [-1.5, -2, -3e38]}
    return [
        json.dumps({"step": 1, "sampling_logprobs": values, "logprobs": values, "advantages": [1, -1]}).encode(),
        json.dumps({"step": 2, **packed, "mask": [1, 0, True], "labels": {"a": "b"}, "sequence_ids": ["x", "y"]})
        .encode(),
        json.dumps({"step": 3, "rollout": "r", **packed, "experts": [[[1, 2]]] * 3, "turns": [0, 1, 0]}).encode(),
        json.dumps({**packed, "methods": [{"name": "n", "method": "opsm", "delta": 0.1}, "tis_token"]}).encode(),
    ]  # fmt: skip


def frames() -> Sequence[bytes]:
    small = {name: array for name, array in arrays_of(1, 2, 3).items() if "experts" not in name}
    two = {name: small[name] for name in ("old_logprobs", "logprobs", "mask")}
    stored = reduced({"step": 1}, {"old_logprobs": small["old_logprobs"], "logprobs": small["logprobs"]}, ())
    return [joined(frame.encode(envelope_of(0, 1), arrays)) for arrays in (two, small, stored)]


def zstd() -> Sequence[bytes]:
    return [zstandard.compress(b"ab" * 50), zstandard.compress(b"") + zstandard.compress(bytes(300))]


def gzip_members() -> Sequence[bytes]:
    return [gzip.compress(b"ab" * 50, mtime=0), gzip.compress(b"", mtime=0) + gzip.compress(bytes(300), mtime=0)]


def summaries() -> Sequence[bytes]:
    """The version and the content, decompressed."""
    two = {name: array for name, array in arrays_of(1, 2, 5).items() if name in ("sampling_logprobs", "old_logprobs")}
    shards = [
        reduced({"step": 1}, arrays, methods)["summary"].tobytes()
        for arrays, methods in ((two, ()), (two, None), (arrays_of(2, 3, 6), None))
    ]
    return [shard[:1] + version_3.content(shard[1:]) for shard in shards]


def cursors() -> Sequence[bytes]:
    return [encode_cursor(1, 2).encode(), encode_cursor(0, 2**63 - 1).encode()]


def changes() -> Sequence[bytes]:
    alerts = {"MismatchKL": {"enabled": False, "steps": 3, "critical": 0.5, "warning": None}}
    return [
        json.dumps({"profile": "fp8", "labels": {"a": "b"}, "alerts": alerts, "finished": True}).encode(),
        json.dumps({"methods": ["opsm", {"name": "n", "method": "opsm", "delta": 0.1}], "correction": "opsm"}).encode(),
        b'{"length_cap": 4096, "methods": null, "correction": null}',
    ]


def rules() -> Sequence[bytes]:
    return [b'{"MismatchKL": {"enabled": false, "steps": 3, "critical": 0.5}}', b"{}"]


def csv_histories() -> Sequence[bytes]:
    return [
        b"Step,run - gaps.mismatch.k3,run - gaps.mismatch.k3__MIN\n0,0.5,0.1\n1,nan,\n",
        b'wall time\ttag\tstep\tvalue\n1.0\t"gaps.mismatch.k1"\t3\t0.25\n',
    ]


def json_histories() -> Sequence[bytes]:
    return [
        b'[{"_step": 0, "gaps.mismatch.k3": 0.5}, {"_step": 1, "gaps.mismatch.k3": null}]',
        b'{"steps": [0, 1], "figures": {"gaps.mismatch.k3": [0.5, 0.25]}, "profile": "fp8"}',
        b'{"step": [0, 1], "gaps.mismatch.k1": [0.5, "0.25"]}',
        b"[[1.5, 0, 0.5], [2.5, 1, 0.25]]",
        b'{"step": 0, "gaps.mismatch.k1": 1}\n{"step": 1, "gaps.mismatch.k1": 2}\n',
    ]


def jsonl_dumps() -> Sequence[bytes]:
    return [_of(lambda folder: dumps.write_jsonl(folder / "a.jsonl", [1, 2]))]


def nemo_rl() -> Sequence[bytes]:
    return [_of(lambda folder: dumps.write_nemo_rl(folder, 1))]


def prime_rl() -> Sequence[bytes]:
    return [_of(lambda folder: dumps.write_prime_rl(folder, 1) / "rank_2.jsonl")]


def traces() -> Sequence[bytes]:
    lines = [[folders.episode(1, 0)], folders.shipped(1), folders.trained(1)]
    return [b"\x1e".join(b"".join(json.dumps(line).encode() + b"\n" for line in part) for part in lines)]


def sealed() -> Sequence[bytes]:
    def write(folder: Path) -> Path:
        path = folder / "a.jsonl"
        path.write_bytes(b'{"a": 1}\n' * 20)
        return folders.seal(path, 50)

    return [_of(write)]


def slime() -> Sequence[bytes]:
    return [
        _of(lambda folder: dumps.write_slime(folder, 1)),
        _of(lambda folder: dumps.write_slime_by_rank(folder, 1)[1]),
    ]


def _of(write: object) -> bytes:
    """What is written into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        path: Path = write(Path(folder))  # pyrefly: ignore[not-callable]
        return path.read_bytes()
