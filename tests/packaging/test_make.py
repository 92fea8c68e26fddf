"""The commands of the Makefile are listed, and an unfit Python is told what to do."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import LONGEST

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ROOT / "scripts" / "install.py"


def test_make_help_lists_the_promised_targets() -> None:
    text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    promised = {"help", "run", "test", "lint", "bench", "build", "conformance", "demo", "clean"}
    listed = {line.split()[1] for line in text.splitlines() if line.startswith("  make ")}
    assert promised - listed == set()


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert script.stat().st_mode & 0o111
    assert lines == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "exec make test"]


def test_all_tests_have_compiled_beside_lint_what_they_need_and_a_few_have_not() -> None:
    def planned(*chosen: str) -> str:
        command = ["make", "--dry-run", "test", *chosen]
        environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "ARGS")}
        text = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        assert text.index(" lint ") < text.index("-m pytest")
        return text.partition(" lint ")[0]

    assert "-m tests.ahead" in planned() and "-m tests.ahead" not in planned("ARGS=-k name")


def test_bytecode_is_kept_whatever_the_environment_says() -> None:
    command = ["make", "--eval", "shown: ; @echo said:$$PYTHONDONTWRITEBYTECODE.", "shown"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    text = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "said:." in text.splitlines()


def python_of_make(folder: Path, *able: str) -> str:
    """Which Python make takes where two are on the path: those named are this one, the others can do nothing."""
    for name in ("python3.11", "python3"):
        does = f'exec {sys.executable} "$@"' if name in able else "exit 1"
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "PYTHON")}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    # The system's own one is looked for under a name that the test chooses.
    makefile = folder / "Makefile"
    makefile.write_text((ROOT / "Makefile").read_text().replace("/usr/bin/python3.11", str(folder / "system")))
    command = ["make", "--file", str(makefile), "--eval", "shown: ; @echo said:$(PYTHON)", "shown"]
    text = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    (said,) = [line.removeprefix("said:") for line in text.splitlines() if line.startswith("said:")]
    return said.removeprefix(f"{folder}/")


def test_the_systems_own_python_is_taken_then_the_first_of_the_path_that_can_make_environments(tmp_path: Path) -> None:
    assert python_of_make(tmp_path, "python3.11", "python3") == "python3.11"
    assert python_of_make(tmp_path, "python3") == "python3"
    assert python_of_make(tmp_path) == "python3.11"  # which says what it lacks
    (tmp_path / "system").write_text("#!/bin/sh\nexit 1\n")  # as where it cannot make environments
    (tmp_path / "system").chmod(0o755)
    assert python_of_make(tmp_path, "python3.11", "python3") == "python3.11"
    (tmp_path / "system").unlink()
    (tmp_path / "system").symlink_to(sys.executable)
    assert python_of_make(tmp_path, "python3.11", "python3") == "system"


def test_a_python_without_ensurepip_is_told_which_package_to_install(tmp_path: Path) -> None:
    # None in sys.modules makes `import ensurepip` fail just as it does where Debian has split it off.
    code = f"import runpy, sys; sys.modules['ensurepip'] = None; sys.argv = ['install.py', '.stamp', 'server']; \
runpy.run_path({str(INSTALL)!r}, run_name='__main__')"
    answer = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "apt-get install python3-venv" in answer.stderr


def test_an_old_python_is_told_the_version_that_is_needed(tmp_path: Path) -> None:
    code = f"import runpy, sys; sys.version_info = (3, 9, 2); sys.argv = ['install.py', '.stamp', 'server']; \
runpy.run_path({str(INSTALL)!r}, run_name='__main__')"
    answer = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "Python 3.11 or newer is needed" in answer.stderr
    assert "is 3.9.2" in answer.stderr


def asked_of_pip(folder: Path, extra: str, status: int) -> list[list[str]]:
    """What pip was called with by an installation in this folder; `status`: of a call without dependencies."""
    for name in ("scripts", ".venv/bin"):
        (folder / name).mkdir(parents=True)
    (folder / "constraints.txt").write_text("# three\na==1\nb==2\ntorch==3\n")
    (folder / "scripts" / "install.py").write_text(INSTALL.read_text())
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f"""#!/bin/sh
echo "$@" >>"{folder}/calls"
case "$*" in *--no-deps*) exit {status};; esac
""")
    python.chmod(0o755)
    command = [sys.executable, str(folder / "scripts" / "install.py"), ".stamp", extra]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Installed in" in said and (folder / ".venv" / ".stamp").exists()
    return [line.split() for line in (folder / "calls").read_text().splitlines() if " install " in line]


def test_what_the_tests_need_is_installed_in_two_halves_and_then_looked_through(tmp_path: Path) -> None:
    *halves, whole = asked_of_pip(tmp_path, "dev", 0)
    assert [half[3] for half in halves] == ["--no-deps"] * 2
    assert sorted(sorted(entry for entry in half if "==" in entry) for half in halves) == [
        ["a==1", "b==2"],
        ["torch==3"],
    ]
    assert whole[-3:] == ["--no-build-isolation", "--editable", ".[dev]"]


def test_halves_that_cannot_be_installed_leave_it_to_pip(tmp_path: Path) -> None:
    *_, whole = asked_of_pip(tmp_path, "dev", 1)
    assert whole[-2:] == ["--editable", ".[dev]"] and "--no-build-isolation" not in whole


def test_what_a_service_needs_is_looked_up_by_pip(tmp_path: Path) -> None:
    assert [call[-2:] for call in asked_of_pip(tmp_path, "server", 0)] == [["--editable", ".[server]"]]


def test_the_files_that_are_begun_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []
