"""The steps of the Dockerfile, run by hand in an empty folder, give a service that its own health check accepts."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_steps_of_the_dockerfile_give_a_healthy_service() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "run_dockerfile.py"), "--share-dependencies"]
    run = subprocess.run(script, capture_output=True, text=True, timeout=180, check=False)
    assert run.stdout.splitlines()[-1:] == ["healthy"], run.stdout + run.stderr
    assert run.returncode == 0
