"""One fault is one message: what a webhook is told from the onset of a fault until it is mended."""

from collections.abc import Sequence
from typing import Any

from offpolicy_monitor.alerts.episodes import CALM

from tests.fixtures.application import Application, Client
from tests.fixtures.http_stub import Asked, Said, answering
from tests.fixtures.prometheus import wait_for
from tests.server.routes.test_verdict import post_step


def told_of(application: Application, modes: Sequence[str]) -> tuple[list[dict[str, Any]], set[str]]:
    """What a webhook was told of a run of these steps, and the rules that were active at any of them."""
    told: list[dict[str, Any]] = []

    def answer(asked: Asked) -> Said:
        told.append(asked.json)
        return Said()

    with answering(answer) as url, application(webhook_url=url) as client:
        for step, mode in enumerate(modes):
            post_step(client, "r", step, mode)
            wait_for(lambda: all_told(client, told))
        alerts = client.get("/v1/alerts?run=r&limit=200").json()["alerts"]
    return told, {row["alert"] for row in alerts if row["active_step"] is not None}


def all_told(client: Client, told: Sequence[dict[str, Any]]) -> bool:
    """Whether every alert that speaks and does not wait was told."""
    states = client.get("/v1/runs/r/rules").json()["rules"]
    roots = {(state["alert"], state["severity"]) for state in states if state.get("root")}
    return roots <= {(one["alert"], one["severity"]) for one in told if one["state"] == "active"}


def test_a_nucleus_that_is_switched_on_and_off_again(application: Application) -> None:
    told, active = told_of(application, [*["healthy"] * 30, *["top_p"] * 12, *["healthy"] * 14])
    assert len(active) >= 8
    # A step of so few tokens may have a log-prob above 0: bad data is another fault.
    of_gaps = [one for one in told if one["half"] != "data"]
    assert [(one["alert"], one["severity"], one["state"]) for one in of_gaps[:2]] == [
        ("MismatchSpike", "warning", "active"),
        ("MismatchKL", "critical", "active"),  # it grew worse
    ]
    assert sorted((one["alert"], one["state"]) for one in of_gaps[2:]) == [
        ("MismatchKL", "resolved"),
        ("MismatchSpike", "resolved"),
    ]
    critical = of_gaps[1]
    assert critical["message"].startswith("Verdict: skip. Drifting since step 30: it looks like top-p renormalisation")
    assert "Do: Sample with top_p = 1" in critical["message"] and critical["message"].endswith(critical["page"])
    assert "MismatchSpike" in critical["evidence"] and critical["inhibited_by"] is None


def test_bad_data_that_comes_and_goes_is_told_once_and_once_more_where_it_goes_on(application: Application) -> None:
    """Each third step has log-probs that are not finite."""
    told, _ = told_of(application, [*["healthy"] * 6, *["nan", "healthy", "healthy"] * 9, *["healthy"] * CALM])
    of_data = [(one["severity"], one["state"]) for one in told if one["half"] == "data"]
    assert of_data == [("critical", "active"), ("critical", "resolved")] * 2
    assert [one["active_step"] for one in told if one["half"] == "data"] == [6] * 4
    assert len({one["id"] for one in told}) == len(told)  # for a receiver that acts once on each
