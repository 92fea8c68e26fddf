"""A hundred thousand runs, as a loop leaves that posts each step under another name: scrapes and lists stay quick."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests.fixtures.application import JSON, Application, json_bytes

RUNS = 100_000


def test_a_hundred_thousand_runs_show_two_hundred_and_a_scrape_takes_less_than_a_second(
    application: Application, tmp_path: Path
) -> None:
    with application() as client:
        for run in ("first", "second"):
            assert client.post(f"/v1/runs/{run}/batches", content=json_bytes(), headers=JSON).status_code == 200
    with closing(sqlite3.connect(tmp_path / "offpolicy.db")) as connection:
        columns = [
            name for _, name, *_ in connection.execute("PRAGMA table_info(steps)") if name not in ("id", "run_id")
        ]
        named, now = ", ".join(columns), time.time()
        connection.executemany(
            "INSERT INTO runs (name, profile, labels, created_at, last_batch_at) VALUES (?, 'dense_bf16', '{}', ?, ?)",
            ((f"loop-{number}", now - 4000, now) for number in range(RUNS)),
        )
        connection.execute(
            f"INSERT INTO steps (run_id, {named}) SELECT runs.id, {', '.join('of.' + name for name in columns)} "
            "FROM runs, steps AS of WHERE runs.id BETWEEN 3 AND 1000 AND of.run_id = 1"
        )
        connection.commit()
    with application() as client:
        # Which it is once it has read what a list shows, in the background.
        deadline = time.monotonic() + 30
        while client.get("/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for path, within in (("/metrics", 1.0), ("/v1/runs", 1.0), ("/v1/runs/loop-77", 1.0)):
            client.get(path)
            began = time.monotonic()
            answer = client.get(path)
            assert answer.status_code == 200
            assert time.monotonic() - began < within, path
            if path == "/metrics":
                assert answer.text.count("offpolicy_run_info{") == 200
                assert answer.text.count("\n") < 400 * 200
        assert client.post("/v1/runs/first/batches", content=json_bytes(step=8), headers=JSON).status_code == 200
