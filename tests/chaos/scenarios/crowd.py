"""Hundreds of connections that bring nothing, around trainers that go on posting."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.chaos.crowd import KEY
from tests.chaos.load import Load
from tests.chaos.probe import Times, probing
from tests.chaos.scenario import POSTGRES, SQLITE, Scenario
from tests.chaos.stage import PROGRAM, Busy, Stage
from tests.chaos.watch import MEBIBYTE, Watch, seen

CONNECTIONS: Final = 500
#: Ten runs of three shards each, and how long each client waits between two shards, seconds.
CLIENTS, PAUSE = 30, 1.0
#: Seconds for which they are alone.
ALONE: Final = 3.0
#: Seconds: under which 99 in 100 answers come, and from question to question.
HEALTH_WITHIN, SCRAPE_WITHIN = 0.1, 0.3
HEALTH_EVERY, SCRAPE_EVERY = 0.1, 0.5
#: Seconds from which on memory is to be flat. The caches of a service fill with its first two thousand shards, some
#: hundred MiB: those are posted before, within so many seconds, each client pausing for so long.
LONG, FILLING, FILLED_WITHIN, QUICKLY = 60, 2000, 180.0, 0.02
#: Bytes that a crowd may take.
COSTS_LESS_THAN: Final = 320 * MEBIBYTE
#: Points of the line of memory that is drawn.
DRAWN: Final = 120
#: Set to 1, as root: database, service and probes go before everything else, so that no neighbour is measured.
REALTIME, PRIORITY = "CHAOS_REALTIME", 10


def before_all_others() -> tuple[str, ...]:
    """What is put before a command that is to be measured on a machine that others use."""
    return ("chrt", "-f", str(PRIORITY)) if os.environ.get(REALTIME) == "1" else ()


@contextmanager
def crowd(port: int, connections: int) -> Iterator[dict[str, int]]:
    """Inside, the crowd is there; how often its connections were made is told afterwards, by their kind."""
    command = [sys.executable, "-m", "tests.chaos.crowd", str(port), str(connections)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    made = dict[str, int]()
    try:
        assert process.stdout.readline() == "here\n"
        yield made
    finally:
        made |= json.loads(process.communicate("", timeout=60)[0] or "{}")


def crowded(stage: Stage) -> None:
    """Bring the crowd for so many seconds, and ask all the while."""
    if before_all_others() and stage.outcome.database == POSTGRES:  # its sessions are to come
        os.sched_setscheduler(stage.cluster.server.pid, os.SCHED_FIFO, os.sched_param(PRIORITY))
    stage.start([*before_all_others(), *PROGRAM])
    assert stage.process is not None
    stage.ledger.sent.add(KEY)
    watch = Watch(settling=stage.times / 4)
    load, is_long = Load(stage.port, stage.ledger, clients=CLIENTS, pause=PAUSE, ahead=4), stage.times >= LONG
    with load.running():
        if is_long:
            load.pause = QUICKLY
            stage.acknowledged_meanwhile(FILLING, FILLED_WITHIN)
            load.pause = PAUSE
        time.sleep(ALONE)
        rested = seen(stage.process.pid, 0)
        health = asked(stage, "/healthz", HEALTH_EVERY, HEALTH_WITHIN)
        scrapes = asked(stage, "/metrics", SCRAPE_EVERY, SCRAPE_WITHIN)
        with health, scrapes, crowd(stage.port, CONNECTIONS) as made, watch.watching():
            watch.follow(stage.process.pid)
            time.sleep(stage.times)
    stage.outcome.trials = sum(made.values())
    life = watch.lives[stage.process.pid]
    stage.measured["memory before (MiB)"] = round(rested.memory / MEBIBYTE)
    stage.measured["connections at most"] = max(one.descriptors for one in life) - rested.descriptors
    tell(stage, watch)
    # Of descriptors each connection has one, and of threads there is a bounded number that starts when needed.
    for sentence in watch.not_flat("memory") if is_long else ():
        stage.promise(False, sentence)
    grown = max(one.memory for one in life) - rested.memory
    stage.promise(grown < COSTS_LESS_THAN, f"the crowd took {grown / MEBIBYTE:.0f} MiB")


def tell(stage: Stage, watch: Watch) -> None:
    """Put what was watched into the report, and its line into the plot."""
    grown = watch.grown()
    highest = max(one.memory for life in watch.lives.values() for one in life)
    stage.measured["memory at most (MiB)"] = round(highest / MEBIBYTE)
    stage.measured["memory grown (MiB)"] = round(grown["memory"] / MEBIBYTE, 1)
    for name in ("descriptors", "threads"):
        stage.measured[f"{name} grown"] = round(grown[name], 1)
    stage.outcome.memory = [(round(at, 1), round(held / MEBIBYTE, 1)) for at, held in watch.peaks(DRAWN)]


@contextmanager
def asked(stage: Stage, path: str, every: float, within: float) -> Iterator[Times]:
    """Inside, a path is asked for so often; 99 in 100 answers are to come in time."""
    busy = None if before_all_others() else Busy()
    with probing(stage.port, path, every, before_all_others()) as times:
        yield times
    found, allowed = times.quantile(0.99), within * (busy.times() if busy is not None else 1.0)
    stage.measured[f"{path} p99 (ms)"] = round(found * 1e3, 1)
    stage.promise(times.failed == 0, f"{times.failed} of {len(times.seconds)} questions for {path} were not answered")
    stage.promise(found < allowed, f"{path} took {found:.3f} s in one of a hundred, of {allowed:.3f} allowed")


SCENARIOS: Sequence[Scenario] = (
    Scenario(
        "500 connections of every kind", crowded, full=90, quick=15, limit=600, alone=True, quick_databases=(SQLITE,)
    ),
)
