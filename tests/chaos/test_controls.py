"""Every check of a scenario finds a planted service that breaks the promise, and nothing in one that keeps it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import stage as stages
from tests.chaos.contents import Key
from tests.chaos.load import Client
from tests.chaos.play import Clusters, play
from tests.chaos.scenario import SQLITE, Outcome, Scenario
from tests.chaos.scenarios import crowd, greedy
from tests.chaos.scenarios.crowd import asked
from tests.chaos.scenarios.disk import refused
from tests.chaos.scenarios.ends import answer_of, ended, half_sent
from tests.chaos.scenarios.greedy import post_at_once
from tests.chaos.scenarios.trainer import judged
from tests.chaos.scenarios.workers import all_ended, led, replaced
from tests.chaos.stage import Stage
from tests.fixtures.http_stub import Asked, Said, answering

KEY = Key("r-0", 0, 0)
STORED = Said(200, {"duplicate": False})
BUSY = Said(503, {"type": "busy"}, {"Retry-After": "1"})
#: In place of a service's process.
WAITS = "import sys; sys.stdin.read()"
FORKS = "import os, sys; (os.fork() and os.fork() and print(flush=True)); sys.stdin.read()"
GROWS = "import sys; sys.stdin.readline(); x = bytearray(b'x' * (64 << 20)); print(flush=True); sys.stdin.read()"


class Idle:
    """A machine that does nothing else."""

    def times(self) -> float:
        return 1.0


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage without a service, on a machine that is not busy."""
    for module in (stages, crowd):
        monkeypatch.setattr(module, "Busy", Idle)
    monkeypatch.setattr(stages, "WARM", 0.0)
    found = Stage(tmp_path, Outcome("planted", SQLITE), 1, None)
    with found.stack:
        yield found


def running(stage: Stage, program: str) -> "subprocess.Popen[bytes]":
    """The process of a service that does nothing else."""
    command = [sys.executable, "-S", "-c", program]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stage.process = stage.stack.enter_context(process)
    return process


def broken(stage: Stage) -> str:
    """What was found, which the next check does not find again."""
    found = "; ".join(stage.outcome.broken)
    stage.outcome.broken.clear()
    return found


def post(stage: Stage, said: Said) -> None:
    """One shard to a service that answers everything so."""
    with answering(lambda _asked: said, stage.port):
        client = Client(stage.port, stage.ledger)
        client.post(KEY)
        client.close()


def test_statuses_that_were_not_promised_are_found(stage: Stage) -> None:
    post(stage, STORED)
    post(stage, BUSY)
    stage.answered({200, 503})
    assert not broken(stage)
    stage.answered({200})
    assert broken(stage).startswith("answers were [503]")
    post(stage, Said(500))
    stage.answered({200, 503})
    assert broken(stage).startswith("answers were [500]")


def test_a_503_without_retry_after_is_found(stage: Stage) -> None:
    post(stage, Said(503))
    stage.answered({503})
    assert broken(stage) == "a 503 had no Retry-After"


def test_a_request_without_an_answer_is_found(stage: Stage) -> None:
    post(stage, Said(cut=True))
    stage.answered(set(), unanswered=True)
    assert not broken(stage)
    stage.answered(set())
    assert broken(stage) == "without an answer: {'RemoteDisconnected': 1}"


def test_an_answer_that_is_late_is_found(stage: Stage) -> None:
    post(stage, Said(503, delay=0.1, headers={"Retry-After": "1"}))
    stage.answered_within(5.0)
    assert not broken(stage)
    stage.answered_within(0.1)
    assert broken(stage).startswith("an answer took")


@pytest.mark.parametrize(
    ("said", "found"),
    [(Said(), ""), (Said(delay=0.1), "/healthz took"), (Said(503), "questions for /healthz were not answered")],
)
def test_one_late_or_wrong_answer_in_a_hundred_is_found(said: Said, found: str, stage: Stage) -> None:
    """Of a probe's questions: with so few of them the slowest counts."""
    seen = list[Asked]()

    def answer(question: Asked) -> Said:
        seen.append(question)
        return said if len(seen) == 2 else Said()

    with answering(answer, stage.port), asked(stage, "/healthz", 0.01, 0.05 if said.delay else 5.0):
        while len(seen) < 3:
            time.sleep(0.01)
    assert found in broken(stage) and bool(found) == bool(seen and (said.delay or said.status != 200))


def test_a_service_that_is_not_well_or_says_that_it_is_ready_is_found(stage: Stage) -> None:
    said = {"/healthz": Said(), "/readyz": Said(503, {"ready": False, "reason": "locked"})}
    with answering(lambda question: said[question.path], stage.port):
        stage.alive()
        stage.unready(saying="locked")
        assert not broken(stage)
        stage.unready(saying="disk")
        assert broken(stage).startswith("/readyz was 503")
        said |= {"/healthz": Said(500), "/readyz": Said(200, {"reason": "locked"})}
        stage.alive()
        assert broken(stage) == "/healthz was not answered"
        stage.unready(saying="locked")
        assert broken(stage).startswith("/readyz was 200")
    stage.alive()
    assert broken(stage) == "/healthz was not answered"


def test_a_status_that_nobody_is_told_is_found(stage: Stage) -> None:
    post(stage, BUSY)
    stage.told(503, seconds=0.0)
    assert not broken(stage)
    stage.told(507, seconds=0.1)
    assert broken(stage) == "nobody was told 507"


def test_a_service_that_recovers_late_or_not_at_all_is_found(stage: Stage) -> None:
    running(stage, WAITS)
    said = [BUSY, BUSY, STORED]
    with answering(lambda _asked: said.pop(0), stage.port), stage.recovering(within=5.0):
        pass
    assert not broken(stage) and len(stage.outcome.recovery) == 1
    late = Said(200, {"duplicate": False}, delay=0.1)
    with answering(lambda _asked: late, stage.port), stage.recovering(within=0.1):
        pass
    assert broken(stage).startswith("recovery took")
    with answering(lambda _asked: BUSY, stage.port), pytest.raises(TimeoutError, match="nothing was acknowledged"):
        stage.acknowledge_one(seconds=0.1)


def test_memory_that_grows_under_a_fault_is_found(stage: Stage) -> None:
    for allowed, found in ((128.0, ""), (32.0, "of 32 allowed")):
        process = running(stage, GROWS)
        assert process.stdin is not None and process.stdout is not None
        stage.wait_for(stage.resident, 5.0, "it has not begun")
        with stage.flat(allowed):
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
            time.sleep(0.25)  # more than from look to look
        assert found in broken(stage)
        stage.end()
        assert bool(found) == (allowed < 64)


def test_a_service_that_ends_by_itself_is_found(stage: Stage) -> None:
    running(stage, WAITS)
    stage.end()
    assert not broken(stage)
    for end in (stage.end, stage.kill):
        running(stage, "raise SystemExit(3)").wait(20)
        end()
        assert broken(stage) == "the service has ended by itself, with 3"


def test_a_worker_that_is_not_replaced_is_found(stage: Stage) -> None:
    parent = running(stage, FORKS)
    assert parent.stdout is not None and parent.stdout.readline() == b"\n"
    one, _ = stage.workers()
    for answering_now, killed, found in ((2, 0, ""), (2, one, "was not replaced"), (1, 0, "was not replaced")):
        said = Said(503, text=f'{{"workers":{{"answering":{answering_now},"of":2}}}}')
        with answering(lambda _asked, said=said: said, stage.port):
            replaced(stage, killed, within=0.3)
        seen = broken(stage)
        assert found in seen and bool(found) == bool(seen)


def test_a_leader_that_nobody_follows_is_found(stage: Stage) -> None:
    serves: list[dict[str, object]] = [
        {"event": "a worker serves", "worker": number, "pid": 10 + number} for number in (1, 2)
    ]
    died: dict[str, object] = {"event": "a worker died, and is replaced", "worker": 1, "pid": 11, "ended": "by SIGKILL"}
    history: list[tuple[dict[str, object], str]] = [
        (serves[0], "no other"),
        ({"event": "this process leads now", "worker": 1}, "no other"),
        (serves[1], "no other"),
        (died, "no other"),
        ({"event": "a worker serves", "worker": 1, "pid": 21}, "no other"),
        ({"event": "this process leads now", "worker": 2}, ""),
    ]
    for said, found in history:
        with stage.log.open("a") as lines:
            lines.write(json.dumps(said) + "\n")
        led(stage, 11, within=0.1)
        seen = broken(stage)
        assert found in seen and bool(found) == bool(seen)


def test_workers_that_outlive_their_supervisor_are_found(stage: Stage) -> None:
    process = running(stage, WAITS)
    all_ended(stage, [process.pid], within=0.1)
    assert broken(stage) == "workers have outlived their supervisor"
    process.kill()
    all_ended(stage, [process.pid], within=5.0)
    assert not broken(stage)
    process.wait(20)
    stage.process = None


def test_a_request_in_flight_that_an_end_cuts_or_refuses_is_found(stage: Stage) -> None:
    for said, found in ((STORED, ""), (Said(500), "answered 500"), (Said(cut=True), "got no answer")):
        with answering(lambda _asked, said=said: said, stage.port):
            connection, rest = half_sent(stage, KEY)
            answer_of(stage, KEY, connection, rest)
        seen = broken(stage)
        assert found in seen and bool(found) == bool(seen)


def test_an_end_that_takes_too_long_or_is_an_error_is_found(stage: Stage) -> None:
    for status, took, found in ((0, 1.0, False), (0, 21.0, True), (1, 1.0, True)):
        ended(stage, status, took, within=20.0)
        assert bool(broken(stage)) == found


def test_a_second_service_that_starts_or_does_not_say_why_not_is_found(stage: Stage) -> None:
    why = "offpolicy.db is written by another process"
    for status, said, found in ((1, why, 0), (0, why, 1), (1, f"Traceback: {why}", 1), (1, "", 1)):
        refused(stage, status, said)
        assert len(stage.outcome.broken) == found
        broken(stage)


def test_a_trainer_that_waits_or_is_not_told_the_truth_is_found(stage: Stage) -> None:
    good = {"logged": 5, "sent": 3, "dropped": 2, "errors": 0}
    for seconds, wrong, found in (
        (0.0001, {}, ""),
        (0.01, {}, "log took"),
        (0.0001, {"sent": 2}, "not all is accounted for"),
        (0.0001, {"dropped": 0, "sent": 5}, "nothing was dropped"),
        (0.0001, {"errors": 1}, "nothing was dropped"),
    ):
        judged(stage, [seconds] * 3, good | wrong)
        seen = broken(stage)
        assert found in seen and bool(found) == bool(seen)


@pytest.mark.parametrize(("said", "found"), [(STORED, ""), (BUSY, "0 of 2 large posts were acknowledged")])
def test_large_posts_that_are_never_taken_are_found(
    said: Said, found: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greedy, "SIZE", 1 << 10)
    monkeypatch.setattr(greedy, "STORED_WITHIN", 0.2)
    monkeypatch.setattr(greedy, "AGAIN", 0.05)
    with answering(lambda _asked: said, stage.port):
        post_at_once(stage, 2)
    seen = broken(stage)
    assert found in seen and bool(found) == bool(seen)


@pytest.mark.parametrize(
    ("plays", "found"),
    [(lambda _stage: time.sleep(5), "TooLongError"), (lambda _stage: os.stat("/nowhere"), "FileNotFoundError")],
)
def test_a_scenario_that_hangs_or_raises_has_failed(plays: Callable[[Stage], None], found: str, tmp_path: Path) -> None:
    outcome = play(Scenario("planted", plays, limit=0.1), SQLITE, True, tmp_path, Clusters(tmp_path / "postgres"))
    assert outcome.failed and outcome.broken[0].startswith(found)
