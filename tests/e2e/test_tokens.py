"""Access tokens from outside: made by the command on PostgreSQL, asked for by services in processes of their own."""

import json
import re
import shlex
import ssl
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fixtures.application import batch
from tests.fixtures.postgres import Cluster
from tests.fixtures.prometheus import prometheus_of, query, wait_for
from tests.fixtures.service import COMMAND, READY_WITHIN, running_service, service, started

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "access.md").read_text()
PREFIX = "urn:offpolicy-monitor:problem:"
#: docs/access.md: how soon a running service knows new, revoked and expired tokens.
WITHIN = 5.0
#: Seconds until a token expires: enough to be seen to be valid on a machine that is busy.
SOON = 12.0
#: The same where it need not be seen.
BRIEFLY = 8.0
#: One for all requests, none of which is to a service with TLS: it reads none of the machine's authorities.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

Command = Callable[..., str]


def commanded(folder: Path, url: str, *arguments: str) -> str:
    """What `offpolicy-monitor token ...` says of the tokens in a database, in a process of its own."""
    said = folder / f"token.{time.monotonic_ns()}.log"
    with said.open("wb") as lines:
        process = started([*COMMAND, "token", *arguments], lines, {"OFFPOLICY_DATABASE_URL": url})
        status = process.wait(READY_WITHIN)
    assert status == 0, said.read_text()
    return said.read_text()


def create(command: Command, *arguments: str) -> str:
    """The text of a new token."""
    (text,) = re.findall(r"^opm_[0-9a-f]+_[0-9a-f]+$", command("create", *arguments), re.MULTILINE)
    return str(text)


def in_seconds(seconds: float) -> str:
    """The moment, as `--expires` takes it."""
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()


def listed(command: Command) -> dict[str, dict[str, Any]]:
    """The tokens by their id."""
    return {row["id"]: row for row in json.loads(command("list", "--json"))}


def outcome(answer: httpx.Response) -> tuple[int, str]:
    """Status, and the kind of problem where it is one."""
    return answer.status_code, answer.json()["type"].removeprefix(PREFIX) if answer.is_error else ""


def ask(url: str, token: str | None = None, path: str = "/v1/runs") -> tuple[int, str]:
    return outcome(httpx.get(f"{url}{path}", headers=bearer(token), timeout=30, verify=NO_AUTHORITIES))


def post(url: str, token: str | None, run: str, step: int = 0) -> tuple[int, str]:
    url, body = f"{url}/v1/runs/{run}/batches", batch(step=step)
    return outcome(httpx.post(url, json=body, headers=bearer(token), timeout=30, verify=NO_AUTHORITIES))


def bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def soon(urls: list[str], token: str, expected: tuple[int, str]) -> None:
    """Every service answers so within the time that the page promises."""

    def answers(url: str) -> bool:
        return ask(url, token) == expected

    for url in urls:
        wait_for(partial(answers, url), WITHIN)


def test_services_on_one_postgresql_know_the_same_tokens_and_a_restart_keeps_them(
    tmp_path: Path, postgres_url: str
) -> None:
    command = partial(commanded, tmp_path, postgres_url)
    setup = {"OFFPOLICY_DATABASE_URL": postgres_url, "OFFPOLICY_AUTH": "required"}
    trainer = create(command, "--scope", "ingest", "--run", "llama-*", "--expires", "90d")
    with service(tmp_path, name="second", **setup) as second:
        with service(tmp_path, name="first", **setup) as first:
            both = [first.url, second.url]
            # From the start on, what was made before; who has none, or one for other runs, is not let in.
            for step, url in enumerate(both):
                assert post(url, trainer, "llama-7b", step) == (200, "")
                assert post(url, trainer, "qwen", step) == (403, "run-not-allowed")
                assert post(url, None, "llama-7b", step) == (401, "token-required")
                assert ask(url, trainer) == (403, "scope-missing")
                assert ask(url) == ask(url, path="/metrics") == (401, "token-required")
                assert httpx.get(f"{url}/readyz").status_code == httpx.get(f"{url}/healthz").status_code == 200

            # What is made, expires and is revoked beside services that run.
            ends = in_seconds(SOON)
            brief = create(command, "--scope", "read", "--expires", ends)
            soon(both, brief, (200, ""))
            reader, one_run = create(command, "--scope", "read"), create(command, "--scope", "read", "--run", "llama-*")
            soon(both, one_run, (200, ""))
            for url in both:
                assert ask(url, reader, "/v1/runs/llama-7b") == ask(url, reader, "/metrics") == (200, "")
                assert ask(url, one_run, "/v1/runs/qwen") == ask(url, one_run, "/metrics") == (403, "run-not-allowed")
                assert post(url, reader, "llama-7b") == (403, "scope-missing")
            with ExitStack() as streams:
                events = [
                    streams.enter_context(
                        httpx.stream("GET", f"{url}/v1/events", headers=bearer(one_run), timeout=WITHIN)
                    )
                    for url in both
                ]
                revoked_by = command("revoke", one_run)
                assert one_run.split("_")[2] not in revoked_by
                begun = time.monotonic()
                for stream in events:
                    assert stream.read().startswith(b"retry:")
                assert time.monotonic() - begun < WITHIN
            soon(both, one_run, (401, "token-revoked"))
            wait_for(lambda: time.time() > datetime.fromisoformat(ends).timestamp(), SOON)
            soon(both, brief, (401, "token-expired"))
            states = {row["id"]: row["state"] for row in listed(command).values()}
            assert sorted(states.values()) == ["expired", "revoked", "valid", "valid"]

        # The other goes on alone, and one that starts knows what there is.
        with service(tmp_path, name="third", **setup) as third:
            for url in (second.url, third.url):
                assert ask(url, one_run) == (401, "token-revoked")
                assert ask(url, brief) == (401, "token-expired")
                assert ask(url, reader, "/v1/runs/llama-7b") == (200, "")
            assert post(third.url, trainer, "llama-7b", 2) == (200, "")
            assert post(third.url, trainer, "qwen", 2) == (403, "run-not-allowed")
            stored = httpx.get(f"{third.url}/v1/runs/llama-7b", headers=bearer(reader)).json()
            assert (stored["last_step"], stored["steps"]) == (2, 3)
    # A service that ends says what was used last, which the minute before had no time for.
    assert {row["id"] for row in listed(command).values() if row["last_used_at"]} == {
        token.split("_")[1] for token in (trainer, reader, one_run, brief)
    }
    logs = "".join((tmp_path / f"{name}.log").read_text() for name in ("first", "second", "third"))
    assert not any(token.split("_")[2] in logs for token in (trainer, reader, one_run, brief))
    refused = [json.loads(line) for line in logs.splitlines() if '"event": "refused"' in line]
    named = {(line["problem"], line["token"]) for line in refused}
    # Who asks before a service knows its token is unknown, which some services are too quick for.
    assert named - {("unknown-token", None)} == {
        ("run-not-allowed", trainer.split("_")[1]),
        ("run-not-allowed", one_run.split("_")[1]),
        ("scope-missing", trainer.split("_")[1]),
        ("scope-missing", reader.split("_")[1]),
        ("token-expired", brief.split("_")[1]),
        ("token-revoked", one_run.split("_")[1]),
        ("token-required", None),
    }


def test_known_tokens_go_on_while_postgresql_stands_still_and_a_revocation_follows(
    tmp_path: Path, postgres_cluster: Cluster, postgres_url: str
) -> None:
    command = partial(commanded, tmp_path, postgres_url)
    reader, revoked = (create(command, "--scope", "read") for _ in range(2))
    brief = create(command, "--scope", "read", "--expires", in_seconds(BRIEFLY))
    setup = {"OFFPOLICY_DATABASE_URL": postgres_url, "OFFPOLICY_AUTH": "required"}
    with running_service(tmp_path, **setup) as url:
        with postgres_cluster.frozen():
            assert [ask(url, token, "/v1/figures") for token in (reader, revoked)] == [(200, "")] * 2
            assert ask(url, reader) == (503, "store-unavailable")
            assert ask(url, f"{reader[:-1]}x") == (401, "unknown-token")
            assert ask(url) == (401, "token-required")
            wait_for(lambda: ask(url, brief, "/v1/figures") == (401, "token-expired"), BRIEFLY)
            assert ask(url, revoked, "/v1/figures") == (200, "")
        command("revoke", revoked)
        soon([url], revoked, (401, "token-revoked"))
        assert ask(url, reader) == (200, "")


def test_prometheus_scrapes_with_the_token_as_the_page_says_and_with_no_other(tmp_path: Path) -> None:
    (made,) = re.findall(r"offpolicy-monitor token (create .*--file /etc/prometheus/offpolicy.token)$", PAGE, re.M)
    (snippet,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    example = (ROOT / "dashboards" / "prometheus" / "prometheus.yaml").read_text()
    file, wrong, trainers = (tmp_path / f"{name}.token" for name in ("offpolicy", "wrong", "trainers"))
    command = partial(commanded, tmp_path, f"sqlite:///{tmp_path / 'service.db'}")
    with running_service(tmp_path, OFFPOLICY_AUTH="required") as url:
        target = url.removeprefix("http://")
        command(*shlex.split(made.replace("/etc/prometheus/offpolicy.token", str(file))))
        wrong.write_text(file.read_text().rstrip()[:-1] + "x")
        command("create", "--scope", "ingest", "--file", str(trainers))

        def job(name: str, credentials: Path) -> dict[str, Any]:
            text = snippet.replace("/etc/prometheus/offpolicy.token", str(credentials)).replace("monitor:8900", target)
            (one,) = yaml.safe_load(text)["scrape_configs"]
            assert str(credentials) in str(one) and target in str(one)
            return {**one, "job_name": name}

        jobs = [job("right", file), job("wrong", wrong), job("trainers", trainers)]
        with prometheus_of(tmp_path, {"scrape_configs": jobs}) as prometheus:

            def up() -> dict[str, str]:
                return {row["metric"]["job"]: row["value"][1] for row in query(prometheus, "up")}

            wait_for(lambda: up() == {"right": "1", "wrong": "0", "trainers": "0"})
            assert query(prometheus, 'offpolicy_leader{job="right"} == 1')
            assert not query(prometheus, 'offpolicy_leader{job!="right"}')
            with urllib.request.urlopen(f"{prometheus}/api/v1/targets") as answer:
                targets = json.load(answer)["data"]["activeTargets"]
            errors = {one["labels"]["job"]: one["lastError"] for one in targets}
            assert (
                errors["right"] == ""
                and "HTTP status 401" in errors["wrong"]
                and "HTTP status 403" in errors["trainers"]
            )

            # A token that is over is replaced by the same command, without a word to Prometheus.
            command("revoke", file.read_text().strip())
            wait_for(lambda: up()["right"] == "0")
            command(*shlex.split(made.replace("/etc/prometheus/offpolicy.token", str(file))))
            wait_for(lambda: up()["right"] == "1")
    uncommented = yaml.safe_load(example.replace("# authorization:", "authorization:"))["scrape_configs"][0]
    assert uncommented["authorization"] == yaml.safe_load(snippet)["scrape_configs"][0]["authorization"]
