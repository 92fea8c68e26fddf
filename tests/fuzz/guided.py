"""One target under atheris: `python -m tests.fuzz.guided NAME SECONDS FOLDER`, in an environment that has it.

What it finds is a file in FOLDER (crash-..., timeout-..., oom-...) and a status that is not 0. Sources of the package
are instrumented as they are imported, so that new ground counts; numpy and torch are not.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import atheris


def main(name: str, seconds: str, folder: str) -> None:
    """Fuzz until the time is up, or something is found."""
    with atheris.instrument_imports(include=["offpolicy_monitor"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as begun:
        for number, seed in enumerate(target.seeds()):
            Path(begun, str(number)).write_bytes(seed)
            target.takes(seed)
        options = ["-timeout=10", "-rss_limit_mb=4096", "-max_len=65536", "-print_final_stats=1"]
        arguments = [sys.argv[0], *options, f"-max_total_time={seconds}", f"-artifact_prefix={folder}/", begun]
        atheris.Setup(arguments, lambda data: target.takes(data) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
