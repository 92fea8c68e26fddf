"""PATCH chooses the method rows of a run: what is posted afterwards is measured with them, and every answer says so.

The good batch's staleness ratios are exp(0.25), 1, exp(-0.0625), 1, exp(0.25): `TIGHT` masks the first and the last.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from offpolicy_monitor.methods import PRESETS

from tests.fixtures.application import JSON, Application, Client, json_bytes

TIGHT = {"name": "tight", "method": "mask", "gap": "staleness", "lower": 0.9, "upper": 1.1}
FULL_TIGHT = {**TIGHT, "level": "token", "statistic": "ratio"}
OPSM = {"name": "opsm", "method": "opsm", "gap": "total", "level": "geometric", "delta": 0.01}
DEFAULTS = [preset.definition for preset in PRESETS]


def post(client: Client, run: str = "a", **changes: Any) -> dict[str, Any]:
    response = client.post(f"/v1/runs/{run}/batches", content=json_bytes(**changes), headers=JSON)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def patch(client: Client, methods: Any, run: str = "a") -> Any:
    body = json.dumps({"methods": methods}).encode()
    return client.request("PATCH", f"/v1/runs/{run}", content=body, headers=JSON)


def choose(client: Client, methods: Sequence[Any] | None) -> dict[str, Any]:
    response = patch(client, methods)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.fixture(scope="module")
def tight(shared_client: Client) -> Client:
    """Of run `a`, which runs TIGHT."""
    post(shared_client)
    choose(shared_client, [TIGHT])
    return shared_client


def test_a_run_has_the_default_rows_until_others_are_chosen(client: Client) -> None:
    post(client)
    found = client.get("/v1/runs/a").json()
    assert (found["methods"], found["default_methods"]) == (DEFAULTS, True)


def test_chosen_presets_and_rows_run_on_the_next_batch_and_no_others(client: Client) -> None:
    post(client, step=1)

    changed = choose(client, ["opsm", TIGHT])
    answer = post(client, step=2)

    assert (changed["methods"], changed["default_methods"]) == ([OPSM, FULL_TIGHT], False)
    assert client.get("/v1/runs/a").json()["methods"] == [OPSM, FULL_TIGHT]
    assert list(answer["methods"]) == ["opsm", "tight"]
    tight = answer["methods"]["tight"]
    assert {name: tight[name] for name in FULL_TIGHT if name != "name"} == {
        name: value for name, value in FULL_TIGHT.items() if name != "name"
    }
    assert (tight["masked_tokens"], tight["masked_token_fraction"], tight["tokens"]) == (2, 0.4, 5)


def test_a_run_that_names_no_correction_has_no_figure_of_one_whatever_its_rows_are_called(client: Client) -> None:
    post(client, step=1)
    choose(client, [{**TIGHT, "name": "None"}])
    post(client, step=2)
    asked = "/v1/runs/a/series?field=correction.k3_kept"
    assert client.get(asked).json()["value"] == [None, None]
    body = json.dumps({"correction": "None"}).encode()
    assert client.request("PATCH", "/v1/runs/a", content=body, headers=JSON).status_code == 200
    before, now = client.get(asked).json()["value"]
    assert before is None and now > 0


def test_a_row_of_ones_own_is_in_the_step_the_series_and_the_metrics(client: Client) -> None:
    post(client, step=1)
    choose(client, [{**TIGHT, "name": "Tight-0_9"}, {"name": "tis", "method": "truncate", "upper": 1.05}])
    post(client, step=2)

    methods = client.get("/v1/runs/a/steps/2").json()["methods"]
    assert sorted(methods) == ["Tight-0_9", "tis"]
    assert methods["Tight-0_9"]["length_bias"]["unit"] == "tokens"
    for field, value in [("masked_token_fraction", 0.4), ("masked_sequence_fraction", 0.0), ("lower", 0.9)]:
        series = client.get(f"/v1/runs/a/series?field=methods.Tight-0_9.{field}").json()
        assert series == {
            "field": f"methods.Tight-0_9.{field}",
            "step": [1, 2],
            "minibatch": [0, 0],
            "value": [None, value],
        }
    metrics = client.get("/metrics").text
    assert 'offpolicy_masked_ratio{method="Tight-0_9",run="a",unit="token"} 0.4' in metrics
    assert 'offpolicy_method_effective_sample_size_ratio{method="tis",run="a"}' in metrics
    assert 'method="opsm"' not in metrics


def test_an_empty_list_runs_none_and_null_the_default_ones(client: Client) -> None:
    post(client, step=1)
    assert (choose(client, [])["methods"], post(client, step=2)["methods"]) == ([], {})
    assert client.get("/v1/runs/a/steps/2").json()["methods"] == {}
    reset = choose(client, None)
    assert (reset["methods"], reset["default_methods"]) == (DEFAULTS, True)
    assert list(post(client, step=3)["methods"]) == [preset.name for preset in PRESETS]


def test_what_a_run_shows_can_be_sent_back_as_it_is(client: Client) -> None:
    post(client)
    shown = client.get("/v1/runs/a").json()["methods"]
    assert choose(client, shown)["methods"] == shown
    assert post(client, step=8)["methods"] == post(client, run="b", step=8)["methods"]


def test_chosen_rows_are_of_their_run_alone_and_other_changes_leave_them(client: Client) -> None:
    post(client), post(client, run="b")
    choose(client, [TIGHT])
    client.request("PATCH", "/v1/runs/a", content=b'{"profile": "fp8", "labels": {"gpu": "h100"}}', headers=JSON)
    assert list(post(client, step=8)["methods"]) == ["tight"]
    assert len(post(client, run="b", step=8)["methods"]) == len(PRESETS)
    assert "methods" not in client.get("/v1/runs").json()["runs"][0]


def test_chosen_rows_survive_a_restart_and_not_the_run(application: Application) -> None:
    with application() as client:
        post(client)
        choose(client, [TIGHT])
    with application() as client:
        assert client.get("/v1/runs/a").json()["methods"] == [FULL_TIGHT]
        assert list(post(client, step=8)["methods"]) == ["tight"]
        client.request("DELETE", "/v1/runs/a")
        assert len(post(client, step=8)["methods"]) == len(PRESETS)


def test_a_duplicate_answers_the_rows_of_the_first_time(client: Client) -> None:
    first = post(client)
    choose(client, [TIGHT])
    again = post(client)
    assert again == {**first, "duplicate": True}


def test_a_step_has_each_row_over_the_shards_that_ran_it(client: Client) -> None:
    post(client, step=1, shard=0, shards=2)
    choose(client, ["grpo", TIGHT, {**OPSM, "delta": 0.5}])
    post(client, step=1, shard=1, shards=2, lengths=[2, 3])

    step = client.get("/v1/runs/a/steps/1").json()

    assert (step["complete"], step["tokens"]) == (True, 10)
    assert step["methods"]["grpo"]["tokens"] == 10
    assert "length_bias" in step["methods"]["grpo"]
    assert "length_bias" not in step["methods"]["tight"], "lengths are kept of all shards together"
    assert (step["methods"]["tight"]["tokens"], step["methods"]["tight"]["masked_token_fraction"]) == (5, 0.4)
    assert step["methods"]["dapo"]["tokens"] == 5
    assert "opsm" not in step["methods"], "its figures would be of neither threshold"
    assert set(step["methods"]) == {preset.name for preset in PRESETS} - {"opsm"} | {"tight"}


def test_the_two_phase_form_runs_the_rows_that_stand_when_each_half_comes(client: Client) -> None:
    post(client, step=1)
    choose(client, [TIGHT, {"name": "wide", "method": "mask", "upper": 3}])
    first = post(client, step=2, rollout="r", logprobs=None, advantages=None)
    choose(client, [TIGHT])
    later: dict[str, Any] = dict.fromkeys(("sampling_logprobs", "old_logprobs", "lengths"))
    whole = post(client, step=2, rollout="r", **later)
    assert (list(first["methods"]), first["stored"]) == (["wide"], False)
    assert whole["stored"]
    assert whole["methods"]["tight"]["masked_tokens"] == 2
    assert list(client.get("/v1/runs/a/steps/2").json()["methods"]) == ["tight"]


def test_a_chosen_row_whose_arrays_were_not_sent_is_absent(client: Client) -> None:
    post(client, step=1)
    choose(client, ["tis_token", "opsm", "grpo", TIGHT])
    assert list(post(client, step=2, advantages=None)["methods"]) == ["tis_token", "tight"]
    assert list(post(client, step=3, old_logprobs=None)["methods"]) == ["opsm"]
    assert list(post(client, step=4, logprobs=None)["methods"]) == ["tis_token"]
    assert list(client.get("/v1/runs/a/steps/4").json()["methods"]) == ["tis_token"]


@pytest.mark.parametrize(
    ("methods", "field"),
    [
        ("opsm", "methods"),
        ({"0": "opsm"}, "methods"),
        (3, "methods"),
        (["opsm", "opsmm"], "methods[1]"),
        (["opsm", None], "methods[1]"),
        (["opsm", 3], "methods[1]"),
        (["opsm", ["grpo"]], "methods[1]"),
        ([TIGHT, {"name": "x"}], "methods[1].method"),
        ([TIGHT, {"method": "opsmm"}], "methods[1].method"),
        ([TIGHT, {"method": "opsm"}], "methods[1].delta"),
        ([TIGHT, {"method": "opsm", "delta": -1}], "methods[1].delta"),
        ([TIGHT, {"method": "opsm", "delta": float("nan")}], "methods[1].delta"),
        ([TIGHT, {"method": "opsm", "delta": 1, "gap": "drift"}], "methods[1].gap"),
        ([TIGHT, {"method": "opsm", "delta": 1, "level": "token"}], "methods[1].level"),
        ([TIGHT, {"method": "opsm", "delta": 1, "epsilon": 2}], "methods[1].epsilon"),
        ([TIGHT, {"method": "mask", "lower": 2, "upper": 1}], "methods[1].lower"),
        (["opsm", "grpo", "opsm"], "methods[2]"),
        (["opsm", {**TIGHT, "name": "opsm"}], "methods[1].name"),
        ([TIGHT, "grpo", TIGHT], "methods[2].name"),
        ([{"method": "opsm", "delta": 1}, "opsm"], "methods[1]"),
        *(
            ([{**TIGHT, "name": name}], "methods[0].name")
            for name in ("", "a.b", "_a", "-a", "a b", "a/b", "é", 'a"b', "a\n", "x" * 65, 7, None)
        ),
        ([f"{'x' * 60}{i}" for i in range(101)], "methods"),
    ],
)
def test_a_wrong_choice_is_refused_by_its_field_and_changes_nothing(methods: Any, field: str, tight: Client) -> None:
    response = patch(tight, methods)
    assert response.status_code == 422, response.text
    assert [error["field"] for error in response.json()["errors"]] == [field]
    assert tight.get("/v1/runs/a").json()["methods"] == [FULL_TIGHT]


def test_a_choice_with_another_field_wrong_changes_nothing(client: Client) -> None:
    post(client)
    body = json.dumps({"methods": [TIGHT], "profile": "fp7"}).encode()
    assert client.request("PATCH", "/v1/runs/a", content=body, headers=JSON).status_code == 422
    assert client.get("/v1/runs/a").json()["default_methods"]


def test_too_many_rows_are_refused_with_the_limit_and_its_setting(application: Application) -> None:
    with application(max_run_methods=2) as client:
        post(client)
        assert choose(client, ["opsm", "grpo"])["methods"][1]["name"] == "grpo"
        message = patch(client, ["opsm", "grpo", "dapo"]).json()["errors"][0]["message"]
    assert message == "3 is over the limit of 2; raise OFFPOLICY_MAX_RUN_METHODS to allow it"


def test_a_hundred_rows_run_on_every_batch(client: Client) -> None:
    post(client)
    rows = [{"name": f"{'n' * 60}{i}", "method": "ipo", "threshold": i / 100} for i in range(100)]
    choose(client, rows)
    methods = post(client, step=8)["methods"]
    assert len(methods) == 100
    assert [methods[row["name"]]["threshold"] for row in rows] == [row["threshold"] for row in rows]


def test_the_rows_of_a_run_that_is_not_there_cannot_be_chosen(client: Client) -> None:
    assert patch(client, ["opsm"]).status_code == 404
    assert client.get("/v1/runs").json()["runs"] == []
