"""What compiles is another process of the lowest priority, one at a time; what it made is trusted with care."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

import pytest
from offpolicy_monitor.measure import compilation, library
from offpolicy_monitor.measure.compilation import COMPILER, FIRST_TO_END, LOWEST_NICE, Compilation
from offpolicy_monitor.measure.fused import Fused, fused_pass

from tests.fixtures.fused import cached_pass
from tests.fixtures.service import COMMAND, STOPPED_WITHIN, Served, served

WITHIN = 60.0  # seconds
SCHED_IDLE = 5  # as /proc/PID/stat has it


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, which is the user's for this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return library.folder()


def fill(cache: Path) -> Path:
    """Put the pass of a warm cache into a directory of this test."""
    found = library.find_pass(cached_pass() / cache.name)
    assert found is not None
    return shutil.copytree(found, cache / found.name)


def nobody_waits(got: Fused | Exception) -> None:
    pytest.fail(f"it was stopped, and said {got}")


def outcome() -> Fused | Exception:
    """The pass, or why there is none."""
    outcomes = SimpleQueue[Fused | Exception]()
    Compilation(fused_pass(1), outcomes.put)
    return outcomes.get(timeout=WITHIN)


def compilers(cache: Path) -> list[int]:
    """The processes that compile into this cache, and the compilers that they have started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(cache).encode() not in (entry / "cmdline").read_bytes():
                continue
            ended = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue  # it ended between the two looks
        if not ended:
            found.append(int(entry.name))
    return found


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def begun(cache: Path) -> Iterator[Compilation]:
    """Compiling that has started its process; whatever it answers is an error, for nobody waits that long."""
    compiling = Compilation(fused_pass(1), nobody_waits)
    try:
        wait_for(lambda: compilers(cache))
        yield compiling
    finally:
        compiling.stop()


def test_what_compiles_has_the_lowest_priority(begun: Compilation, cache: Path) -> None:
    (process, *_) = compilers(cache)
    wait_for(lambda: os.getpriority(os.PRIO_PROCESS, process) == LOWEST_NICE)
    wait_for(lambda: os.sched_getscheduler(process) == SCHED_IDLE == os.SCHED_IDLE)
    assert Path(f"/proc/{process}/oom_score_adj").read_text().strip() == str(FIRST_TO_END)


def test_how_far_it_is_is_told_until_it_ends(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that is done with one function, then with two, and then fails."""
    text = (
        "import pathlib, sys, time; build = pathlib.Path(sys.argv[1])\n"
        "for name in 'ab': (build / f'{name}.nbi').touch(); time.sleep(0.5)\n"
        "sys.exit(1)"
    )

    class Slow(Compilation):
        def _started(self, cache: Path, build: Path, lock: int) -> "subprocess.Popen[bytes]":
            (build / "reason").write_text("it cannot")
            (build / "log").touch()
            self._child = subprocess.Popen([sys.executable, "-c", text, str(build)], process_group=0)
            return self._child

    monkeypatch.setattr(compilation, "TELL", 0.05)
    told, outcomes = list[int](), SimpleQueue[Fused | Exception]()
    Slow(fused_pass(1), outcomes.put, told.append)
    assert str(outcomes.get(timeout=WITHIN)) == "it cannot"
    assert told == sorted(told) and {*told} == {0, 1, 2}


def test_stopping_ends_every_process_that_compiles_and_leaves_nothing_behind(begun: Compilation, cache: Path) -> None:
    started = time.monotonic()
    begun.stop()
    assert time.monotonic() - started < 5.0
    assert not compilers(cache) and [path.name for path in cache.iterdir()] == ["lock"]


def test_one_process_at_a_time_compiles_for_a_cache(begun: Compilation, cache: Path) -> None:
    second = Compilation(fused_pass(1), nobody_waits)
    time.sleep(1.5)
    top = [process for process in compilers(cache) if COMPILER.encode() in command_of(process)]
    assert len(top) == 1
    begun.stop()
    wait_for(lambda: {*compilers(cache)} - {*top})
    second.stop()
    assert not compilers(cache)


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def test_whoever_waits_for_another_process_takes_what_that_one_made(cache: Path) -> None:
    outcomes = SimpleQueue[Fused | Exception]()
    first = Compilation(fused_pass(1), outcomes.put)
    wait_for(lambda: compilers(cache))
    told = list[int]()
    second = Compilation(fused_pass(1), outcomes.put, told.append)
    wait_for(lambda: told)
    fill(cache)
    first.stop()
    assert callable(outcomes.get(timeout=WITHIN))
    second.stop()
    assert outcomes.empty() and not compilers(cache)


#: What a process prints of a trainer's step.
SCRIPT = """
import gc, sys
gc.disable()
from offpolicy_monitor.client.reduce import reduced
from tests.client.batches import batch
names = ("torch._inductor", "torch._dynamo", "numba", "offpolicy_monitor.measure.compiler")
print(list(reduced({}, batch(64, 256))), [name for name in sys.modules if name.startswith(names)])
"""


def test_a_trainer_that_reduces_starts_no_compiler(cache: Path) -> None:
    script = [sys.executable, "-c", SCRIPT]
    said = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert (said.stdout, said.stderr) == ("['summary'] []\n", "")
    assert not list(cache.iterdir())


def test_what_compiles_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    with compiling_service(tmp_path) as (service, cache):
        wait_for(lambda: any(COMPILER.encode() in command_of(process) for process in compilers(cache)))
        time.sleep(1.0)
        service.process.kill()
        assert service.process.wait(WITHIN) == -signal.SIGKILL
    let_run(compilers(cache))
    wait_for(lambda: not compilers(cache))


@contextmanager
def compiling_service(folder: Path) -> Iterator[tuple[Served, Path]]:
    """A service that is to compile, and its cache directory."""
    cache = folder / "cache"
    chosen = {"TORCH_COMPILE": "true", "DEVICE": "cpu", "DATABASE_URL": f"sqlite:///{folder / 'service.db'}"}
    settings = {f"OFFPOLICY_{name}": value for name, value in chosen.items()} | {"XDG_CACHE_HOME": str(cache)}
    with served([*COMMAND, "serve", "--port"], folder / "log", settings) as service:
        yield service, cache


def let_run(processes: list[int]) -> None:
    """With the other tests beside it, the lowest priority may wait minutes for its turn to notice anything."""
    threads = [int(entry.name) for process in processes for entry in Path(f"/proc/{process}/task").glob("*")]
    for thread in threads:
        with suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, thread, 0)
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def test_a_service_that_is_told_to_end_while_it_compiles_ends_at_once_with_all_of_it(tmp_path: Path) -> None:
    with compiling_service(tmp_path) as (service, cache):
        wait_for(lambda: compilers(cache) and "is serving" in service.log.read_text())
        began = time.monotonic()
        service.process.terminate()
        assert service.process.wait(WITHIN) == 0
    assert time.monotonic() - began < STOPPED_WITHIN
    assert not compilers(cache) and "Traceback" not in service.log.read_text()


def test_without_a_compiler_the_reason_is_given_whatever_else_was_said(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What libraries print at their end comes after the reason."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "numba.py").write_text(
        "import atexit, sys\natexit.register(print, 'last words', file=sys.stderr)\nraise ImportError('no LLVM here')\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(broken), os.environ.get("PYTHONPATH", "")]))
    got = outcome()
    assert isinstance(got, RuntimeError) and str(got) == "ImportError: no LLVM here", got
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_a_pass_that_is_not_whole_is_compiled_anew(cache: Path) -> None:
    file = next(path for path in fill(cache).rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:-1])
    compiling = Compilation(fused_pass(1), nobody_waits)
    wait_for(lambda: compilers(cache))
    compiling.stop()


def test_a_pass_that_was_compiled_under_other_settings_of_numba_is_not_found(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba would not find its functions there, and compile them where it serves."""
    fill(cache)
    assert library.find_pass(cache)
    with monkeypatch.context() as patched:
        patched.setenv("NUMBA_CPU_NAME", "generic")
        assert library.find_pass(cache) is None
    assert library.find_pass(cache)


def test_a_pass_that_goes_while_it_is_read_is_looked_for_once_more(cache: Path) -> None:
    fill(cache)
    load, gone = fused_pass(1), [FileNotFoundError(2, "it was just removed")]

    def going(folder: Path) -> Fused | None:
        if gone:
            raise gone.pop()
        return load(folder)

    outcomes = SimpleQueue[Fused | Exception]()
    Compilation(going, outcomes.put)
    assert callable(outcomes.get(timeout=WITHIN))
    assert not compilers(cache)


def test_what_others_can_write_is_not_loaded_and_nothing_is_compiled(cache: Path) -> None:
    filled = fill(cache)
    for path, mode in ((filled, 0o620), (filled, 0o602), (cache, 0o770), (cache, 0o707)):
        before = path.stat().st_mode
        path.chmod(mode)
        got = outcome()
        path.chmod(before)
        assert isinstance(got, PermissionError) and "others can write to" in str(got)
    assert not compilers(cache)
    assert callable(outcome())


def test_what_belongs_to_another_user_is_not_loaded(cache: Path) -> None:
    filled = fill(cache)
    if os.geteuid() == 0:
        os.chown(filled, 12345, -1)
    else:
        filled = Path("/etc/passwd")
    with pytest.raises(PermissionError, match="belongs to another user"):
        library.check_owned(filled)


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert isinstance(outcome(), NotADirectoryError)


def test_a_relative_cache_directory_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert library.folder() == tmp_path / ".cache" / "offpolicy-monitor"


def test_a_pass_takes_the_place_of_one_of_the_same_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of others as many stay as are said to, the newest: versions that come and go fill no disk."""
    passes = tmp_path / "passes"
    passes.mkdir(mode=0o700)

    def publish(content: str, published: int) -> None:
        built = tmp_path / "built"
        built.mkdir()
        (built / "pass").write_text(content)
        os.utime(built, (published, published))
        library.publish_pass(built, passes)

    publish("first", 0)
    others = [f"of sources {index}" for index in range(library.OTHERS_KEPT + 1)]
    for index, other in enumerate(others):
        (tmp_path / other).mkdir()
        (tmp_path / other / "vocabulary.py").write_text(other)
        with monkeypatch.context() as patched:
            patched.setattr(library, "ROOT", tmp_path / other)
            publish(other, 9 - index)
    publish("second", 0)
    assert sorted(path.read_text() for path in passes.glob("*/pass")) == [*others[:-1], "second"]
    found = library.find_pass(passes)
    assert found is not None and (found / "pass").read_text() == "second"
