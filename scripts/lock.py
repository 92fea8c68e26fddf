"""Rewrite constraints.txt: every version that the extras resolve to, with their whole closure (`make lock`).

Versions that stand there already are kept; delete a line to let pip choose anew. Local parts (`+cpu`) are dropped, so
that the same file serves builds of torch for CPU and for CUDA. Packages that only a CUDA build brings are not listed:
torch pins them itself.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = "server,postgres,dev"
PINNED_BY_TORCH = re.compile(r"(nvidia|cuda|triton)\b")
HEADER = """\
# Every version that the tests ran with, for each install of this repository: pip install -c constraints.txt ...
# Written by `make lock`. Local parts of versions are left out on purpose: torch comes from whichever index pip uses.
"""


def resolve() -> list[str]:
    """`name==version` of everything that an install of all extras would bring, this project left out."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = subprocess.run([*pip, "-c", CONSTRAINTS, f"{ROOT}[{EXTRAS}]"], check=True, stdout=subprocess.PIPE).stdout
    found = [entry["metadata"] for entry in json.loads(report)["install"]]
    versions = {package["name"].lower(): package["version"].split("+")[0] for package in found}
    del versions["offpolicy-monitor"]
    return [f"{name}=={version}" for name, version in sorted(versions.items()) if not PINNED_BY_TORCH.match(name)]


def main() -> None:
    """Write the file."""
    CONSTRAINTS.touch()
    lines = resolve()
    CONSTRAINTS.write_text(HEADER + "\n".join(lines) + "\n")
    print(f"{len(lines)} versions in {CONSTRAINTS.name}")


if __name__ == "__main__":
    main()
