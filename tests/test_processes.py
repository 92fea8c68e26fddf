"""`pytest --processes N` says what one process says, survives a test that ends its process, and leaves none behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.fixtures.processes import END_WITHIN

MIXED = """
import os, warnings, pytest

@pytest.fixture
def broken():
    yield
    raise RuntimeError("torn")

@pytest.fixture(scope="session")
def lasting():
    yield
    print("put away")
    raise RuntimeError("not put away")

def test_passes(tmp_path):
    assert list(tmp_path.iterdir()) == []

def test_fails():
    print("said before")
    assert 1 == 2

@pytest.mark.skip(reason="not here")
def test_is_skipped(): ...

def test_warns():
    warnings.warn("look", UserWarning)

def test_is_torn(broken): ...

@pytest.mark.xfail
def test_is_expected_to_fail():
    assert False

def test_lasts(lasting): ...
"""
OTHER = "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_n(n): ...\n"
DIES = "import os\ndef test_before(): ...\ndef test_dies(): os._exit(7)\ndef test_after(): ...\n"
WAITS = (
    "import os, pathlib, time\ndef test_waits():\n    pathlib.Path(f'{os.getpid()}.pid').touch()\n    time.sleep(60)\n"
)

#: In which the folder of this file is importable, whatever folder it is that is tested, and plugins of others are not.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def command(*arguments: str) -> list[str]:
    """The one that runs the tests of the folder it is started in."""
    plugins = ["-p", "tests.fixtures.processes", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", "-q", "--basetemp=folders", *plugins, *arguments]


def ran(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit status and what was said."""
    said = folder / "said.txt"  # and no pipe, whose end comes when all that a test has left behind have ended
    with said.open("w") as file:
        run = subprocess.run(command(*arguments), cwd=folder, env=ENVIRONMENT, stdout=file, stderr=file, check=False)
    return run.returncode, said.read_text()


def written(folder: Path, **files: str) -> Path:
    """The folder, with these files of tests."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    return folder


def outcomes(file: Path) -> set[tuple[str | None, ...]]:
    """What a JUnit file has of each test, nothing where it passed, and of what was torn down after it."""
    cases = list(ElementTree.parse(file).iter("testcase"))
    found: set[tuple[str | None, ...]] = {(case.get("name"),) for case in cases}
    return found | {(case.get("name"), of.tag, of.get("message"), of.text) for case in cases for of in case}


def test_what_is_said_is_what_one_process_says(tmp_path: Path) -> None:
    folder = written(tmp_path, mixed=MIXED, other=OTHER)
    alone = ran(folder, "--junitxml=alone.xml", "test_other.py", "test_mixed.py")
    several = ran(folder, "--junitxml=several.xml", "test_other.py", "test_mixed.py", "--processes=2")
    assert outcomes(folder / "several.xml") == outcomes(folder / "alone.xml") != set()
    count = "1 failed, 24 passed, 1 skipped, 1 xfailed, 1 warning, 2 errors"
    for status, said in (alone, several):
        assert status == pytest.ExitCode.TESTS_FAILED and count in said
        assert "UserWarning: look" in said and "RuntimeError: not put away" in said and "said before" in said


def test_a_test_that_ends_its_process_fails_and_the_others_of_its_file_are_run(tmp_path: Path) -> None:
    status, said = ran(written(tmp_path, dies=DIES, other=OTHER), "--processes=2")
    assert status == pytest.ExitCode.TESTS_FAILED and "1 failed, 22 passed" in said
    assert "the process ended with status 7 while it ran this test" in said


@pytest.mark.parametrize(
    "text",
    [
        "import time\ndef test_stands(): time.sleep(600)\ndef test_after(): ...\n",
        "import pytest, time\n@pytest.fixture(scope='session')\ndef stands():\n    yield\n    time.sleep(600)\n"
        "def test_before(stands): ...\n",
    ],
    ids=["in a test", "in what the session has set up"],
)
def test_a_process_of_which_nothing_is_heard_is_ended_and_says_where_it_stood(tmp_path: Path, text: str) -> None:
    began = time.monotonic()
    status, said = ran(written(tmp_path, stands=text), "--processes=1", "--process-timeout=2")
    assert status in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)
    assert "nothing was heard of it for too long" in said and "test_stands.py" in said
    assert time.monotonic() - began < END_WITHIN


def test_what_a_test_leaves_behind_keeps_nobody_waiting(tmp_path: Path) -> None:
    text = (
        "import os, pathlib, time\ndef test_leaves():\n    pid = os.fork()\n    if not pid:\n        time.sleep(600)\n"
    )
    folder = written(tmp_path, leaves=text + "    pathlib.Path(f'{pid}.pid').touch()\n", other=OTHER)
    began = time.monotonic()
    status, said = ran(folder, "--processes=2")
    [left] = folder.glob("*.pid")
    os.kill(int(left.stem), signal.SIGKILL)
    assert status == pytest.ExitCode.OK and "21 passed" in said
    assert time.monotonic() - began < END_WITHIN


def test_files_that_are_marked_as_one_are_run_by_one_process(tmp_path: Path) -> None:
    text = "import os, pathlib, pytest\npytestmark = pytest.mark.process('x')\n"
    text += "def test(): pathlib.Path(f'{os.getpid()}.pid').open('a').write('.')\n"
    folder = written(tmp_path, first=text, other=OTHER, second=text)
    assert ran(folder, "--processes=2")[0] == pytest.ExitCode.OK
    [file] = folder.glob("*.pid")
    assert file.read_text() == ".."


def test_after_as_many_failures_as_are_allowed_no_test_is_begun(tmp_path: Path) -> None:
    folder = written(tmp_path, fails="def test_fails(): assert False\ndef test_after(): ...\n", waits=WAITS)
    began = time.monotonic()
    status, said = ran(folder, "-x", "--processes=2")
    assert status == pytest.ExitCode.TESTS_FAILED and "1 failed in" in said
    assert time.monotonic() - began < END_WITHIN


def test_what_is_interrupted_leaves_no_process(tmp_path: Path) -> None:
    folder = written(tmp_path, waits=WAITS)
    run = subprocess.Popen(command("--processes=1"), cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    while not (begun := list(folder.glob("*.pid"))):
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == pytest.ExitCode.INTERRUPTED and "KeyboardInterrupt" in said
    assert not Path("/proc", begun[0].stem).exists()
