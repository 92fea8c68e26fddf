"""Install this checkout into .venv, saying what goes on: `python3 scripts/install.py STAMP EXTRA...`

Creates the environment where it is missing, installs the project in editable form with the extras, every version
held by constraints.txt, and touches STAMP inside .venv, which make compares with what the installation depends on.
Runs on the user's own Python before anything is installed, so it imports the standard library alone.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "install.log"
CONSTRAINTS = "constraints.txt"  # relative: pip splits a path with spaces when it comes by the environment
OLDEST_PYTHON = (3, 11)
# Bytecode of all 14,600 modules takes pip as long as the rest of the installation, and Python makes that of what is
# imported at its first use.
OPTIONS = ("--disable-pip-version-check", "--no-compile")
# The pip that comes with Python 3.11 takes some 10 s of a processor more: it compares every release of every package.
PIP = "pip==26.3"
# Names before this one take about as long as the rest, of which torch is most.
MIDDLE = "s"
HEARTBEAT = 10.0  # seconds between two signs of life where the output is no terminal

NO_VENV = """This Python ({python}) cannot create virtual environments: its modules venv or ensurepip are missing.
On Debian and Ubuntu:  apt-get install python3-venv
Or use another Python: make {goal} PYTHON=/path/to/python3.11"""
OLD_PYTHON = """Python {oldest} or newer is needed; {python} is {found}.
Name another one:  make run PYTHON=/path/to/python3.11"""


def main(stamp: str, *extras: str) -> None:
    """Create .venv if need be, install, touch the stamp."""
    require_python()
    os.chdir(ROOT)
    if not environment_works():
        create_environment()
    print(
        f"Installing into .venv ({', '.join(extras)}). The first time takes 1 to 5 minutes: torch is large.", flush=True
    )
    started = time.monotonic()
    has_all = "dev" in extras and install_locked(started)
    install(f".[{','.join(extras)}]", started, has_all)
    (VENV / stamp).touch()


def require_python() -> None:
    """Stop with what to do where this Python is too old or cannot create environments."""
    if sys.version_info < OLDEST_PYTHON:
        oldest, found = (".".join(map(str, version[:3])) for version in (OLDEST_PYTHON, tuple(sys.version_info)))
        sys.exit(OLD_PYTHON.format(oldest=oldest, python=sys.executable, found=found))
    try:
        import ensurepip  # noqa: F401  Debian splits these two from python3
        import venv  # noqa: F401
    except ImportError:
        sys.exit(NO_VENV.format(python=sys.executable, goal="run"))


def environment_works() -> bool:
    """Whether .venv holds a Python with pip; one that was copied from elsewhere or cut off half-way does not."""
    if not PYTHON.exists():
        return False
    return subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0


def create_environment() -> None:
    """Create .venv from this Python, replacing a broken one.

    The pip of this Python installs the one of .venv; where that fails, ensurepip does, which takes three seconds more.
    """
    print(f"Creating .venv with Python {sys.version.split()[0]}", flush=True)
    import venv

    venv.create(VENV, with_pip=False, clear=True)
    if not get_pip(sys.executable, "--python", str(PYTHON)):
        venv.create(VENV, with_pip=True, clear=True)
        get_pip(str(PYTHON))  # where it cannot be had, the pip that is there does the same, more slowly


def get_pip(python: str, *into: str) -> bool:
    """Whether the pip of a Python has installed `PIP`."""
    command = [python, "-m", "pip", *into, "install", *OPTIONS, PIP]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def install_locked(started: float) -> bool:
    """What all extras come to is all of constraints.txt: two pips at a time install half of it each, as it stands.

    That takes little more than half of the time of one that looks up what each package needs. `install` does so
    afterwards, whatever became of this: it installs what is missing here, and says what fails. Answers whether all of
    it is installed.
    """
    lines = [line for line in Path(CONSTRAINTS).read_text().splitlines() if "==" in line]
    halves = [line for line in lines if line < MIDDLE], [line for line in lines if line >= MIDDLE]
    command = [PYTHON, "-m", "pip", "install", "--no-deps", *OPTIONS]
    running = [
        subprocess.Popen([*command, *half], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for half in halves
    ]
    try:
        return not any([watch(half, started, "what constraints.txt names") for half in running])
    finally:
        for half in running:
            half.terminate()


def install(requirement: str, started: float, has_all: bool) -> None:
    """Run pip quietly into a log, with a sign of life; on failure show the end of the log and stop.

    `has_all`: what builds the project is there with all else, and is not installed apart for that, which takes 2 s.
    """
    # The build's own requirements are constrained too: older pip reads the first name for that, newer the second.
    environment = {**os.environ, "PIP_CONSTRAINT": CONSTRAINTS, "PIP_BUILD_CONSTRAINT": CONSTRAINTS}
    command = [str(PYTHON), "-m", "pip", "install", *OPTIONS]
    if has_all:
        del environment["PIP_BUILD_CONSTRAINT"]  # pip refuses it beside the option
        command.append("--no-build-isolation")
    command += ["--editable", requirement]
    with LOG.open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            status = watch(process, started)
        finally:
            process.terminate()
    if status != 0:
        sys.exit(f"{tail(LOG, 20)}\n\npip failed with status {status}; all of its output is in {LOG}")
    print(f"Installed in {time.monotonic() - started:.0f} s", flush=True)


def watch(process: "subprocess.Popen[bytes]", started: float, said: str = "") -> int:
    """Wait for the process, showing the time that passed, and what it does or the last line of the log."""
    live, shown = sys.stdout.isatty(), started
    while True:
        try:
            status = process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if live or now - shown >= HEARTBEAT:
                line = f"  {now - started:4.0f} s  {said or tail(LOG, 1).strip()[:90]}"
                print(f"\r\033[K{line}" if live else line, end="" if live else "\n", flush=True)
                shown = now
        else:
            print("\r\033[K" if live else "", end="", flush=True)
            return status


def tail(path: Path, lines: int) -> str:
    """The last lines of a text file."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    main(*sys.argv[1:])
