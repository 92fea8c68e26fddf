"""`python -m scripts.deployment PYTHON`: the manifests by the schemas that PYTHON has, and the unit."""

import sys
import tempfile
from pathlib import Path

from scripts.deployment import kubernetes, systemd


def main(python: str) -> None:
    """Ends with another status than 0 where something is not accepted."""
    with tempfile.TemporaryDirectory() as name:
        kubernetes.check(Path(python).absolute(), Path(name))
        systemd.check(Path(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
