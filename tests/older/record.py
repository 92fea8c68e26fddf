"""`python -m tests.older.record FOLDER`: what a release leaves behind, recorded for the releases after it.

Run in a checkout of today with PYTHONPATH at the unpacked wheel of that release. FOLDER gets the database that its
service filled, what its API answered of it, and the sources that its client consists of.
"""

import argparse
import io
import json
import lzma
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import offpolicy_monitor

from tests.fixtures.service import running_service
from tests.older.kept import ANSWERS, CLIENT, DATABASE, TRAINER

#: The reduced run is short: a shard is stored alike however it came.
RUNS: Final = ("raw", "reduced:reduced:1")
CHANGES: Final = {
    "raw": {
        "labels": {"cluster": "b", "note": "moved"},
        "correction": "opsm",
        "alerts": {"MismatchKL": {"warning": 1e-9, "steps": 1}},
    },
    "reduced": {"profile": "fp8", "finished": True},
}
STEPS: Final = {"raw": ((0, 0), (1, 0), (2, 0), (2, 1), (3, 0)), "reduced": ((0, 0),)}
FIELDS: Final = (
    "tokens", "gaps.mismatch.k3", "gaps.total.sequence.ess", "methods.opsm.masked_token_fraction", "policy_lag.max",
    "routing.total.agreement", "entropy_mean",
)  # fmt: skip
#: What a client is made of: the monitor, and what reducing needs.
PARTS: Final = ("*.py", "client/*.py", "wire/*.py", "core/*.py", "measure/*.py", "methods/*.py", "summary/*.py")
SERVERS: Final = ("catalogue.py", "cli.py", "export.py", "families.py", "logs.py", "resources.py", "settings.py")


def main() -> int:
    """Serve, train, ask, keep."""
    parser = argparse.ArgumentParser("python -m tests.older.record", description="Record what a release leaves behind.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        with running_service(Path(scratch), OFFPOLICY_DEVICE="cpu", OFFPOLICY_KEEP_WORST="1") as url:
            fill(url)
            answers = {path: asked(url, path) for path in paths()}
        (folder / DATABASE).write_bytes(packed(written_anew(Path(scratch))))
    (folder / ANSWERS).write_bytes(packed(json.dumps(answers, separators=(",", ":")).encode()))
    keep_client(folder / CLIENT)
    return 0


def fill(url: str) -> None:
    """Train the runs and change them."""
    subprocess.run([sys.executable, TRAINER, url, *RUNS], check=True)
    for run, changes in CHANGES.items():
        body, headers = json.dumps(changes).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/runs/{run}", body, headers, method="PATCH")
        urllib.request.urlopen(request, timeout=60).close()


def paths() -> Sequence[str]:
    """What is asked of the service."""
    of_runs = [
        f"/v1/runs/{run}{rest}"
        for run, steps in STEPS.items()
        for rest in (
            "",
            "/steps?by=minibatch",
            *(f"/steps/{step}?minibatch={minibatch}" for step, minibatch in steps),
            *(f"/series?field={field}" for field in FIELDS),
            *(f"/worst?step={step}" for step, _ in steps),
            "/whatif?method=mask&gap=mismatch&level=token",
            "/recommendations?target=0.05",
            "/diagnosis",
        )
    ]
    return ["/v1/runs", "/v1/alerts", *of_runs]


def asked(url: str, path: str) -> Any:
    """The answer to a GET."""
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        return json.load(answer)


def written_anew(scratch: Path) -> bytes:
    """The database of the service as one file without free pages."""
    with closing(sqlite3.connect(scratch / "service.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(scratch / "anew.db"),))
    return (scratch / "anew.db").read_bytes()


def packed(content: bytes) -> bytes:
    return lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)


def keep_client(file: Path) -> None:
    """The sources of the client, without what trainers of frameworks import."""
    package = Path(str(offpolicy_monitor.__file__)).parent
    servers = {package / name for name in SERVERS}
    found = sorted({path for part in PARTS for path in package.glob(part)} - servers)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in found:
            archive.add(path, path.relative_to(package.parent), filter=_anonymous)
    file.write_bytes(packed(content.getvalue()))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


if __name__ == "__main__":
    sys.exit(main())
