"""What is read back is what was stored, in the shapes of the contract."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.application import JSON, Client, json_bytes, rows, started

#: A mismatch k3 of 0.051 nats per token: critical after three steps.
APART = {"sampling_logprobs": [-0.5, -1.0, -0.0625, -2.5, -0.75]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reading")


@pytest.fixture(scope="module")
def service(folder: Path, migrated_file: Path) -> Iterator[Client]:
    """Run `a` with steps 1..3 of two gradient steps each, run `b` with one step of a missing shard."""
    with started(folder, migrated_file) as running:
        for step in (1, 2, 3):
            for minibatch in (0, 1):
                body = json_bytes(step=step, minibatch=minibatch, minibatches=2, policy_version=step, **APART)
                running.post("/v1/runs/a/batches", content=body, headers=JSON)
        running.post("/v1/runs/b/batches", content=json_bytes(step=5, shards=2), headers=JSON)
        yield running


def test_runs_are_listed_newest_first(service: Client) -> None:
    found = service.get("/v1/runs").json()
    assert [(run["run"], run["last_step"], run["verdict"]) for run in found["runs"]] == [
        ("b", 5, "accept"),
        ("a", 3, "skip"),
    ]
    assert found["next_cursor"] is None
    assert (found["runs"][1]["profile"], found["runs"][1]["labels"]) == ("dense_bf16", {})


def test_runs_come_in_pages(service: Client) -> None:
    first = service.get("/v1/runs?limit=1").json()
    second = service.get(f"/v1/runs?limit=1&cursor={first['next_cursor']}").json()
    assert [first["runs"][0]["run"], second["runs"][0]["run"]] == ["b", "a"]
    assert second["next_cursor"] is None


def test_one_run_answers_for_itself(service: Client) -> None:
    found = service.get("/v1/runs/a").json()
    assert (found["run"], found["last_step"], found["state"]) == ("a", 3, "live")


def test_steps_answer_the_last_gradient_step_of_each(service: Client) -> None:
    steps = service.get("/v1/runs/a/steps").json()["steps"]
    assert [(step["step"], step["minibatch"]) for step in steps] == [(1, 1), (2, 1), (3, 1)]
    assert steps[0]["gaps"]["total"]["tokens"] == 5


def test_steps_by_minibatch_answer_every_gradient_step(service: Client) -> None:
    steps = service.get("/v1/runs/a/steps?by=minibatch&from=2&to=2").json()["steps"]
    assert [(step["step"], step["minibatch"]) for step in steps] == [(2, 0), (2, 1)]


def test_steps_in_headlines_are_those_that_count_with_the_figures_of_the_whole_rows(service: Client) -> None:
    whole = service.get("/v1/runs/a/steps").json()["steps"]
    found = service.get("/v1/runs/a/steps?detail=headline&from=2").json()["steps"]
    assert [(row["step"], row["minibatch"], row["verdict"], row["tokens"]) for row in found] == [
        (2, 1, "accept", 5),
        (3, 1, "skip", 5),
    ]
    assert {figure: found[0]["gaps"]["total"][figure] for figure in ("k1", "k3", "ess")} == {
        figure: whole[1]["gaps"]["total"][figure] for figure in ("k1", "k3", "ess")
    }
    assert "quantiles" in whole[1]["gaps"]["total"] and "quantiles" not in found[0]["gaps"]["total"]
    assert service.get("/v1/runs/b/steps?detail=headline").json()["steps"] == []  # a shard is missing


def test_steps_come_in_pages(service: Client) -> None:
    first = service.get("/v1/runs/a/steps?limit=2").json()
    second = service.get(f"/v1/runs/a/steps?limit=2&cursor={first['next_cursor']}").json()
    assert [step["step"] for step in first["steps"] + second["steps"]] == [1, 2, 3]


def test_a_step_answers_its_merge_also_while_a_shard_is_missing(service: Client) -> None:
    step = service.get("/v1/runs/b/steps/5").json()
    assert (step["received_shards"], step["shards"], step["complete"]) == (1, 2, False)
    assert (step["tokens"], step["minibatches"]) == (5, [0])
    first = step["breakdowns"]["position"]["first"]
    assert first["gaps"]["mismatch"]["tokens"] == 2
    assert first["attribution"]["mismatch"] == 0.5
    assert sum(step["attribution"].values()) == pytest.approx(1.0)


def test_a_bucket_of_a_breakdown_can_be_plotted(service: Client) -> None:
    field = "breakdowns.position.first.gaps.mismatch.tokens"
    series = service.get(f"/v1/runs/a/series?field={field}").json()
    assert series["value"]
    assert all(value is None or value > 0 for value in series["value"])
    lacking = service.get("/v1/runs/a/series?field=breakdowns.turn.3.gaps.mismatch.k3").json()
    assert set(lacking["value"]) == {None}
    assert service.get("/v1/runs/a/series?field=breakdowns.position.first.gaps.mismatch.nothing").status_code == 422


def test_a_step_names_its_minibatches_and_answers_one_of_them(service: Client) -> None:
    step = service.get("/v1/runs/a/steps/2?minibatch=0").json()
    assert (step["minibatch"], step["minibatches"]) == (0, [0, 1])


def test_a_series_is_columns_of_equal_length(service: Client) -> None:
    series = service.get("/v1/runs/a/series?field=gaps.staleness.k1&from=2").json()
    assert series["field"] == "gaps.staleness.k1"
    assert (series["step"], series["minibatch"]) == ([2, 2, 3, 3], [0, 1, 0, 1])
    assert series["value"] == pytest.approx([-(0.25 - 0.0625 + 0.25) / 5] * 4)


@pytest.mark.parametrize("path", ["c", "c/steps", "c/series?field=tokens", "a/steps/9", "a/steps/3?minibatch=2"])
def test_what_is_not_known_is_404(path: str, service: Client) -> None:
    response = service.get(f"/v1/runs/{path}")
    assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize(
    "path, field",
    [
        ("/v1/runs?limit=0", "limit"),
        ("/v1/runs?limit=all", "limit"),
        ("/v1/runs?cursor=nonsense", "cursor"),
        ("/v1/runs?page=2", "page"),
        ("/v1/runs/a/steps?from=-1", "from"),
        ("/v1/runs/a/steps?first=1", "first"),
        ("/v1/runs/a/steps?by=epoch", "by"),
        ("/v1/runs/a/steps/x", "step"),
        ("/v1/runs/a/steps/-1", "step"),
        ("/v1/runs/a/steps/9223372036854775808", "step"),
        ("/v1/runs/a/series", "field"),
        ("/v1/runs/a/series?field=gaps.nothing", "field"),
        ("/v1/runs/a/series?field=tokens&points=0", "points"),
    ],
)
def test_a_wrong_parameter_is_422_and_named(path: str, field: str, service: Client) -> None:
    response = service.get(path)
    assert response.status_code == 422, response.text
    assert field in [error["field"] for error in response.json()["errors"]]


def test_patch_changes_what_is_sent_and_nothing_else(client: Client) -> None:
    client.post("/v1/runs/a/batches", content=json_bytes(), headers=JSON)

    client.request("PATCH", "/v1/runs/a", content=b'{"labels": {"gpu": "h100"}}', headers=JSON)
    found = client.request("PATCH", "/v1/runs/a", content=b'{"profile": "fp8"}', headers=JSON).json()

    assert (found["profile"], found["labels"]) == ("fp8", {"gpu": "h100"})
    assert client.get("/v1/runs/a").json() == found
    assert 'offpolicy_run_info{profile="fp8",run="a"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize(
    "body, status, field",
    [
        (b"{", 400, None),
        (b"[]", 422, "body"),
        (b'{"profile": "fp7"}', 422, "profile"),
        (b'{"name": "b"}', 422, "name"),
        (b'{"labels": {"a": 1}}', 422, "labels"),
        (json.dumps({"labels": {"a": "v" * 65}}).encode(), 422, "labels"),
        (json.dumps({"labels": {"a": "\x1b[2J"}}).encode(), 422, "labels"),
        (json.dumps({"labels": {"a\u202eb": "c"}}).encode(), 422, "labels"),
        (json.dumps({"labels": {str(i): "v" for i in range(9)}}).encode(), 422, "labels"),
        (b" " * 70_000, 413, "body"),
    ],
)
def test_a_wrong_patch_is_refused_by_name(body: bytes, status: int, field: str | None, service: Client) -> None:
    response = service.request("PATCH", "/v1/runs/a", content=body, headers=JSON)
    assert response.status_code == status, response.text
    assert field is None or field in [error["field"] for error in response.json()["errors"]]
    assert service.get("/v1/runs/a").json()["profile"] == "dense_bf16"


def test_delete_removes_a_run_with_its_history_and_its_metrics(client: Client, tmp_path: Path) -> None:
    client.post("/v1/runs/a/batches", content=json_bytes(), headers=JSON)

    assert client.request("DELETE", "/v1/runs/a").status_code == 204

    assert client.get("/v1/runs/a").status_code == 404
    assert client.request("DELETE", "/v1/runs/a").status_code == 404
    assert client.get("/v1/runs").json()["runs"] == []
    assert 'run="a"' not in client.get("/metrics").text
    gone, deadline = {"runs": 0, "shards": 0, "steps": 0, "metrics": 0}, time.monotonic() + 30
    while rows(tmp_path) != gone and time.monotonic() < deadline:
        time.sleep(0.1)
    assert rows(tmp_path) == gone


@pytest.mark.parametrize("path", ["/", "/docs", "/metrics", "/healthz", "/v1/runs", "/v1/runs/none"])
def test_head_answers_like_get_without_the_body(path: str, client: Client) -> None:
    got, head = client.get(path), client.request("HEAD", path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert path == "/metrics" or head.headers["content-length"] == str(len(got.content))


def test_head_is_not_allowed_where_get_is_not(client: Client) -> None:
    response = client.request("HEAD", "/v1/evaluate")
    assert (response.status_code, response.headers["allow"], response.content) == (405, "POST", b"")


def test_several_fields_are_answered_together_in_the_order_asked(service: Client) -> None:
    fields = ("gaps.staleness.k1", "verdict", "policy_version", "received_at", "tokens")
    answer = service.get(f"/v1/runs/a/series?{'&'.join(f'field={field}' for field in fields)}&by=step").json()
    assert [series["field"] for series in answer["series"]] == list(fields)
    assert all((series["step"], series["minibatch"]) == ([1, 2, 3], [1, 1, 1]) for series in answer["series"])
    by_field = {series["field"]: series["value"] for series in answer["series"]}
    assert (by_field["verdict"], by_field["policy_version"]) == (["accept", "accept", "skip"], [1, 2, 3])
    assert all(time.endswith("Z") for time in by_field["received_at"])
    assert by_field["gaps.staleness.k1"] == pytest.approx([-(0.25 - 0.0625 + 0.25) / 5] * 3)


def test_fields_as_tables_are_the_same_on_one_x_without_those_that_no_step_has(service: Client) -> None:
    fields = (
        "gaps.staleness.k1",
        "verdict",
        "received_at",
        "entropy_mean",
        "gaps.staleness.k2",
        "tokens",
    )
    asked = f"/v1/runs/a/series?{'&'.join(f'field={field}' for field in fields)}&by=step"
    apart, together = (service.get(asked + layout).json() for layout in ("", "&layout=tables"))
    found = {
        field: {"field": field, "step": table["step"], "minibatch": table["minibatch"], "value": values}
        for table in together["tables"]
        for field, values in table["values"].items()
    }
    assert len(together["tables"]) == 2 and "entropy_mean" not in found
    assert [found[field] for field in fields if field in found] == [
        series for series in apart["series"] if series["field"] != "entropy_mean"
    ]


def test_one_field_answers_one_series(service: Client) -> None:
    answer = service.get("/v1/runs/a/series?field=tokens").json()
    assert set(answer) == {"field", "step", "minibatch", "value"}
    assert answer == service.get("/v1/runs/a/series?field=tokens&by=minibatch").json()


@pytest.mark.parametrize(
    "query",
    ["&".join(["field=tokens"] * 49), f"field={'k' * 201}&field=tokens", "field=tokens&field=gaps.nothing"],
)
def test_a_question_for_too_much_or_for_nothing_known_is_422_and_names_the_field(query: str, service: Client) -> None:
    response = service.get(f"/v1/runs/a/series?{query}")
    assert (response.status_code, [error["field"] for error in response.json()["errors"]]) == (422, ["field"])
