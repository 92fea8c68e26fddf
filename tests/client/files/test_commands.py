"""The commands as people start them, against a real service; most are forks, which spares the imports of a start."""

import errno
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

from tests.client.files import dumps, traces
from tests.fixtures.service import COMMAND, Process, clean_environment, free_port, started

TOKENS = sum(dumps.LENGTHS)


def environment(url: str) -> dict[str, str]:
    return clean_environment() | {"OFFPOLICY_URL": url}


def begun(url: str, log: IO[bytes], *arguments: object) -> Process:
    """A command that says to the log what it says on either stream."""
    return started([*COMMAND, *map(str, arguments)], log, {"OFFPOLICY_URL": url})


def run(url: str, *arguments: object) -> tuple[int, str]:
    """Exit status, and what it said."""
    with TemporaryFile() as log:
        process = begun(url, log, *arguments)
        try:
            status = process.wait(120)
        finally:
            process.kill()
        return status, said_in(log)


def said_in(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode()


def asked(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
        return json.load(answer)


def posted_by_hand(url: str, name: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/runs/{name}/batches", data, headers)
    urllib.request.urlopen(request, timeout=30).close()


def figures(url: str, name: str, step: int) -> dict[str, Any]:
    document: dict[str, Any] = asked(url, f"/v1/runs/{name}/steps/{step}")
    return {key: document[key] for key in ("tokens", "sequences", "gaps", "methods", "complete")}


def counted(url: str, metric: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return sum(float(n) for n in re.findall(rf'^{metric}{{[^}}]*run="{name}"[^}}]*}} (\S+)$', text, re.MULTILINE))


WRITERS = {
    "prime-rl": dumps.write_prime_rl,
    "nemo-rl": dumps.write_nemo_rl,
    "slime": dumps.write_slime,
    "jsonl": lambda root, step: dumps.write_jsonl(root / "a.jsonl", [step]),
    "safetensors": dumps.write_frame,
}


@pytest.mark.parametrize("form", WRITERS)
def test_a_replayed_dump_gives_the_figures_of_posting_by_hand(url: str, tmp_path: Path, form: str) -> None:
    for step in (3, 4):
        WRITERS[form](tmp_path, step)
    status, said = run(url, "replay", tmp_path, "--format", form, "--run", f"replay-{form}")
    assert (status, said.strip().splitlines()[-1]) == (0, "2 batches stored")
    current = "logprobs" if form == "prime-rl" else "old_logprobs"
    for step in (3, 4):
        posted_by_hand(url, f"hand-{form}", dumps.body(step, current))
        found, wanted = figures(url, f"replay-{form}", step), figures(url, f"hand-{form}", step)
        assert found == wanted
        assert found["tokens"] == TOKENS and found["complete"]
        assert list(found["gaps"]) == ["total" if form == "prime-rl" else "mismatch"]


def test_traces_of_prime_rl_are_tailed_once_and_known_to_a_replay(url: str, tmp_path: Path) -> None:
    for step in (3, 4):
        traces.write(tmp_path / "monitors" / "file" / "traces", step)
    given = ("--format", "prime-rl", "--run", "traced")
    status, said = run(url, "tail", tmp_path, *given, "--once", "--settle", "0.1")
    assert (status, said.strip().splitlines()[-1]) == (0, "2 batches stored")
    status, said = run(url, "replay", tmp_path, *given)
    assert (status, said.strip().splitlines()[-1]) == (0, "0 batches stored, 2 known before")
    found = figures(url, "traced", 4)
    assert (found["tokens"], found["complete"], list(found["gaps"])) == (TOKENS, True, ["total"])


def test_replaying_again_counts_nothing_twice(url: str, tmp_path: Path) -> None:
    path = dumps.write_nemo_rl(tmp_path, 1)
    assert run(url, "replay", path, "--run", "again")[0] == 0
    status, said = run(url, "replay", path, "--run", "again")
    assert (status, said.strip().splitlines()[-1]) == (0, "0 batches stored, 1 known before")
    assert counted(url, "offpolicy_tokens_total", "again") == TOKENS


def test_tail_follows_growing_lines_and_resumes_where_it_stopped(url: str, tmp_path: Path) -> None:
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0])
    log = (tmp_path / "said").open("w+b")
    process = begun(url, log, "tail", tmp_path, "--format", "jsonl", "--run", "grow", "--poll", "0.05")
    try:
        until(lambda: counted(url, "offpolicy_tokens_total", "grow") == TOKENS)
        line = json.dumps(dumps.body(1)) + "\n"
        with path.open("a") as file:
            file.write(line[:50])
            file.flush()
            time.sleep(0.3)
            assert counted(url, "offpolicy_tokens_total", "grow") == TOKENS
            file.write(line[50:])
        until(lambda: counted(url, "offpolicy_tokens_total", "grow") == 2 * TOKENS)
        time.sleep(0.5)  # it is counted before the answer has come
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0 and said_in(log).splitlines()[-1] == "2 batches stored"
    finally:
        process.kill()
        log.close()
    dumps.write_jsonl(path, [2])
    status, said = run(url, "tail", tmp_path, "--format", "jsonl", "--run", "grow", "--once")
    assert (status, said.strip().splitlines()[-1]) == (0, "1 batch stored")


def until(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.parametrize("form", ["jsonl", "nemo-rl"])
def test_killed_at_any_point_nothing_is_lost_and_nothing_counted_twice(url: str, tmp_path: Path, form: str) -> None:
    steps, name, source = 40, f"killed-{form}", random.Random(7)
    for step in range(steps):
        WRITERS[form](tmp_path, step)
    arguments = ("tail", tmp_path, "--format", form, "--run", name, "--once", "--settle", "0")
    midway = 0
    for attempt in range(12):
        before = counted(url, "offpolicy_tokens_total", name)
        with TemporaryFile() as log:
            process = begun(url, log, *arguments)
        # By turns soon after it began, and just after it has posted, however long either takes here.
        while attempt % 2 and process.poll() is None and counted(url, "offpolicy_tokens_total", name) == before:
            time.sleep(0.01)
        time.sleep(source.random() * (0.05 if attempt % 2 else 0.2))
        if process.poll() is not None:
            break
        process.kill()
        process.wait(20)
        midway += 0 < counted(url, "offpolicy_tokens_total", name) < steps * TOKENS
    assert midway >= 1
    assert run(url, *arguments)[0] == 0
    rows = asked(url, f"/v1/runs/{name}/steps?limit=500")["steps"]
    assert [row["step"] for row in rows] == list(range(steps))
    assert counted(url, "offpolicy_tokens_total", name) == steps * TOKENS
    assert not list(tmp_path.glob("*.jsonl.tmp"))


def test_a_malformed_line_ends_replay_with_its_place_and_reason(url: str, tmp_path: Path) -> None:
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0])
    path.write_text(path.read_text() + '{"step": 1}\n[]\n')
    dumps.write_jsonl(path, [2])
    status, said = run(url, "replay", path, "--run", "bad")
    assert status == 1
    assert f"{path}:2: refused: 422" in said
    status, said = run(url, "replay", path, "--run", "bad", "--skip-bad")
    assert status == 1
    assert f"skipped {path}:3: is not a JSON object" in said
    assert said.strip().splitlines()[-1] == "1 batch stored, 1 known before, 2 bad, skipped"


def test_other_content_under_a_known_key_asks_for_a_higher_attempt(url: str, tmp_path: Path) -> None:
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0])
    assert run(url, "replay", path, "--run", "conflict")[0] == 0
    path.write_text(json.dumps(dumps.body(5) | {"step": 0}) + "\n")
    status, said = run(url, "replay", path, "--run", "conflict")
    assert status == 1 and "409" in said and "need a higher --attempt" in said
    assert run(url, "replay", path, "--run", "conflict", "--attempt", 1)[0] == 0


def test_a_dry_run_says_what_would_be_posted_and_posts_nothing(tmp_path: Path) -> None:
    path = dumps.write_nemo_rl(tmp_path, 7)
    status, said = run("http://127.0.0.1:9", "replay", path, "--run", "dry", "--dry-run")
    assert status == 0
    assert re.search(
        rf"^{path}: step 7 minibatch 0 shard 0 of 1, \S+ k?B application/vnd.safetensors: "
        "advantages lengths mask old_logprobs rewards sampling_logprobs$",
        said, re.MULTILINE,
    )  # fmt: skip
    assert "1 batch would be posted" in said


BASE_INSTALL = """
import sys
for name in ("alembic fastapi httptools jinja2 markdown_it orjson prometheus_client pydantic pydantic_settings yaml "
             "sqlalchemy structlog torch uvicorn uvloop xxhash zstandard").split():
    sys.modules[name] = None
from offpolicy_monitor.cli import main
sys.exit(main(sys.argv[1:]))
"""


def base_install(url: str, *arguments: object) -> tuple[int, str]:
    """The same with numpy alone."""
    command = [sys.executable, "-c", BASE_INSTALL, *map(str, arguments)]
    done = subprocess.run(command, env=environment(url), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_base_install_reads_and_posts_all_but_torch_files(url: str, tmp_path: Path) -> None:
    for form in ("jsonl", "safetensors", "nemo-rl", "prime-rl"):
        (tmp_path / form).mkdir()
        WRITERS[form](tmp_path / form, 1)
    for form in ("jsonl", "safetensors", "nemo-rl"):
        arguments = ("--format", form, "--run", f"base-{form}")
        assert base_install(url, "tail", tmp_path / form, "--once", "--settle", "0", *arguments)[0] == 0
    assert base_install(url, "replay", tmp_path / "prime-rl", "--run", "base-prime-rl")[0] == 0
    for form in ("jsonl", "safetensors", "nemo-rl", "prime-rl"):
        assert counted(url, "offpolicy_tokens_total", f"base-{form}") == TOKENS
    status, said = base_install(url, "replay", dumps.write_slime(tmp_path, 1), "--run", "r")
    assert status == 3
    assert "torch is not installed: pip install 'offpolicy-monitor[server]'" in said


def test_a_service_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    path, url = dumps.write_jsonl(tmp_path / "a.jsonl", [0]), f"http://127.0.0.1:{free_port()}"
    status, said = run(url, "replay", path, "--run", "r1", "--patience", "0.5")
    assert status == 3
    assert f"waiting for {url}: ConnectionRefusedError" in said
    assert said.splitlines()[-1].startswith(f"offpolicy-monitor: no luck with {url}")


def test_the_page_of_files_has_every_format_and_every_option(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "files.md").read_text()
    for command in ("tail", "replay"):
        status, said = run("http://127.0.0.1:9", command, "--help")
        options = set(re.findall(r"--[a-z-]+", said.split("options:")[1].split("examples:")[0])) - {"--help"}
        assert status == 0 and len(options) >= 9
        assert not [option for option in options if f"`{option}" not in page]
    assert not [name for name in WRITERS if f"| `{name}` |" not in page]


def test_a_state_that_cannot_be_written_is_said_before_anything_is_posted(tmp_path: Path) -> None:
    arguments = ("tail", tmp_path, "--format", "jsonl", "--run", "r", "--once", "--state", tmp_path / "none" / "s.json")
    status, said = run("http://127.0.0.1:9", *arguments)
    assert status == 3 and "name another file with --state" in said


def test_what_cannot_be_started_says_what_to_change(tmp_path: Path) -> None:
    path = dumps.write_jsonl(tmp_path / "a.jsonl", [0])
    (tmp_path / "x.bin").touch()
    url = "http://127.0.0.1:9"
    for arguments, reason in (
        (("replay", path), "no run is named: pass --run, or set OFFPOLICY_RUN"),
        (("replay", path, "--run", "a/b"), "'a/b' is no name of a run"),
        (("replay", tmp_path / "x.bin", "--run", "r"), "say --format"),
        (("replay", tmp_path / "none", "--run", "r"), "does not exist"),
        (("replay", path, "--run", "r", "--format", "slime"), "holds no dump of the format slime"),
        (("tail", path, "--run", "r", "--format", "jsonl"), "is no folder"),
    ):
        status, said = run(url, *arguments)
        assert status == 3 and reason in said, said


def test_a_terminal_gets_a_bar_that_ends_full(url: str, tmp_path: Path) -> None:
    dumps.write_jsonl(tmp_path / "a.jsonl", range(40))
    mine, its = pty.openpty()
    arguments = [*COMMAND, "replay", str(tmp_path / "a.jsonl"), "--run", "bar"]
    size = {"COLUMNS": "120"}
    process = subprocess.Popen(arguments, env=environment(url) | size, stdout=its, stderr=its)
    os.close(its)
    seen = b""
    try:
        while part := os.read(mine, 4096):
            seen += part
    except OSError as error:  # how a pseudo-terminal tells that its other end is closed
        assert error.errno == errno.EIO
    finally:
        os.close(mine)
    assert process.wait(20) == 0
    frames = seen.decode().split("\r\x1b[2K")
    assert re.match(r"\[#{24}\] 100%  (\S+ kB) of \1  \S+ kB/s  ETA 0:00  step 39\r\n", frames[-1])
    assert re.match(r"\[#* +\]  ?\s?\d+%  ", frames[1])
    assert frames[-1].endswith("40 batches stored\r\n")
