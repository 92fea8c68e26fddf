"""How many series a run has: bounded unless the operator asks for more, and what is left out is what is quiet."""

import json
from collections import Counter
from typing import Any

from offpolicy_monitor.alerts import RULES
from offpolicy_monitor.exposition.alerts import MOST_SERIES, shown
from offpolicy_monitor.families import RUN_HISTOGRAMS

from tests.exposition.loaded import loaded
from tests.fixtures.application import JSON, Application, Client

MOST = 400
ALERT = ("breach_steps", "active", "root", "value", "threshold")


def post(client: Client, run: str, steps: range, **spread: float) -> None:
    for step in steps:
        answer = client.post(f"/v1/runs/{run}/batches", content=json.dumps(loaded(step, **spread)), headers=JSON)
        assert answer.status_code == 200


def series(client: Client, run: str) -> Counter[str]:
    """Family -> how many series a run has of it."""
    lines = client.get("/metrics").text.splitlines()
    return Counter(line.partition("{")[0] for line in lines if f'run="{run}"' in line)


def alerts(client: Client, run: str) -> dict[str, set[str]]:
    """Family of alerts -> "alert severity" for each series."""
    found: dict[str, set[str]] = {name: set() for name in ALERT}
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("offpolicy_alert_") and f'run="{run}"' in line:
            labels = dict(part.split("=") for part in line.partition("{")[2].partition("}")[0].split(","))
            name = line.partition("{")[0].removeprefix("offpolicy_alert_")
            found[name].add(f"{labels['alert']} {labels['severity']}".replace('"', ""))
    return found


def test_a_run_with_everything_has_at_most_four_hundred_series(client: Client) -> None:
    post(client, "healthy", range(3))
    found = series(client, "healthy")
    # All three gaps, the presets, advantages, versions, routing, entropy: nothing that a run can have is missing.
    assert {"offpolicy_routing_agreement_ratio", "offpolicy_entropy_nats_mean"} <= set(found)
    assert found["offpolicy_kl_nats"] == 12 and found["offpolicy_masked_advantage_ratio"] > 20
    assert sum(found.values()) <= MOST - 50


def test_a_run_that_breaches_many_rules_has_no_more(client: Client) -> None:
    post(client, "drifting", range(6), noise=0.6, drift=0.6)
    assert len(alerts(client, "drifting")["value"]) >= 12
    assert sum(series(client, "drifting").values()) <= MOST


def test_a_quiet_rule_shows_what_it_counts_and_one_that_is_breached_shows_all(client: Client) -> None:
    post(client, "r", range(2), noise=0.3)
    states = client.get("/v1/runs/r/rules").json()["rules"]
    wanted = {f"{s['alert']} {s['severity']}": s["state"] for s in states if s["state"] not in ("disabled", "silent")}
    breached = {name for name, state in wanted.items() if state in ("pending", "active")}
    assert breached and breached < set(wanted)
    found = alerts(client, "r")
    assert found.pop("breach_steps") == set(wanted)
    assert found.pop("root") == {f"{state['alert']} {state['severity']}" for state in states if "root" in state}
    assert set(map(frozenset, found.values())) == {frozenset(breached)}


def test_a_run_that_breaches_every_rule_has_no_more_and_shows_its_worst(client: Client) -> None:
    post(client, "healthy", range(3))
    found = series(client, "healthy")
    others = sum(count for family, count in found.items() if not family.startswith("offpolicy_alert_"))
    states: list[dict[str, Any]] = [
        {"alert": rule.name, "severity": severity, "state": "active", "breach_steps": 3, "value": 2.0, "threshold": 1.0}
        for rule in RULES
        for severity in rule.severities
    ]
    states[-1]["root"] = True
    assert shown(states, ())[states[-1]["alert"]]["critical"]["value"] == 2.0  # the last of all, were it not the root
    figures = [(severity, name) for of in shown(states, ()).values() for severity in of for name in of[severity]]
    counted = Counter(name for _, name in figures)
    assert counted["breach_steps"] == counted["active"] == len(states)
    assert counted["value"] == counted["threshold"] >= 7
    assert {severity for severity, name in figures if name == "value"} == {"critical"}
    assert others + sum(counted.values()) <= MOST


def test_own_terms_for_every_rule_are_bounded_too() -> None:
    states = [
        {"alert": rule.name, "severity": severity, "state": "quiet", "breach_steps": 0, "value": 0.0, "threshold": 1.0}
        for rule in RULES
        for severity in rule.severities
    ]
    found = shown(states, [rule.name for rule in RULES])
    assert 100 < sum(len(figures) for rule in found.values() for figures in rule.values()) <= MOST_SERIES


def test_a_rule_that_the_run_has_its_own_terms_for_shows_them_though_it_is_quiet(client: Client) -> None:
    post(client, "r", range(2))
    terms = {"alerts": {"MismatchKL": {"warning": 0.5}}}
    assert client.request("PATCH", "/v1/runs/r", json=terms).status_code == 200
    found = client.get("/metrics").text
    assert 'offpolicy_alert_threshold{alert="MismatchKL",run="r",severity="warning"} 0.5\n' in found
    assert 'offpolicy_alert_value{alert="MismatchKL",run="r",severity="warning"} ' in found
    assert 'offpolicy_alert_threshold{alert="MismatchDrift",' not in found


def test_the_settings_show_the_rest(application: Application) -> None:
    with application(histogram_buckets="full", alert_gauges="all") as client:
        post(client, "r", range(2))
        found, of_alerts = series(client, "r"), alerts(client, "r")
    for family in RUN_HISTOGRAMS:
        assert found[f"{family.full_name}_bucket"] == 3 * (len(family.all_bounds) + 1)
    assert of_alerts["breach_steps"] == of_alerts["threshold"] == of_alerts["active"]
    assert len(of_alerts["threshold"]) > 30
