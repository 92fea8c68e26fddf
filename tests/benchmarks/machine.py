"""What a figure depends on: the processor, how many cores, how busy they are, and the versions at work."""

import os
import platform
import subprocess
from pathlib import Path

import numba
import numpy as np
import torch
from offpolicy_monitor import __version__


def machine() -> dict[str, object]:
    return {
        "version": __version__,
        "commit": commit(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def commit() -> str | None:
    """The commit that is checked out, with a + where files differ from it; None outside a checkout."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def processor() -> str:
    """Its model, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def load() -> list[float]:
    """Runnable processes on average over the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]
