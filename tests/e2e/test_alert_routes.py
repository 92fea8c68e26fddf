"""The shipped rules and the Alertmanager example on the real programs, over a target that says what it is told."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.fixtures.prometheus import (
    EXAMPLE,
    Receiver,
    exposing,
    running_alertmanager,
    running_prometheus,
    wait_for,
    webhook_receiver,
)
from tests.fixtures.tools import require_tool


def exposition(breaches: Mapping[tuple[str, str], int], roots: Mapping[tuple[str, str], int]) -> str:
    """One run at step 41; each alert needs 3 steps, has the value 0.25 and the threshold 0.125."""
    lines = ['offpolicy_step{run="r"} 41', 'offpolicy_run_finished{run="r"} 0']
    for (alert, severity), steps in breaches.items():
        labels = f'{{run="r",alert="{alert}",severity="{severity}"}}'
        values = {"breach_steps": steps, "active": int(steps >= 3), "value": 0.25, "threshold": 0.125}
        if (alert, severity) in roots:
            values["root"] = roots[alert, severity]
        lines += [f"offpolicy_alert_{name}{labels} {value}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def test_amtool_accepts_the_example() -> None:
    done = subprocess.run([require_tool("amtool"), "check-config", EXAMPLE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 inhibit rules" in done.stdout and "3 receivers" in done.stdout


def routes_of(*labels: str) -> str:
    command = [str(require_tool("amtool")), "config", "routes", "test", f"--config.file={EXAMPLE}", *labels]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_criticals_page_warnings_go_to_the_chat_and_notes_to_nobody() -> None:
    assert routes_of("run=a", "severity=critical", "alertname=MismatchKL") == "page"
    assert routes_of("run=a", "severity=warning", "alertname=MismatchKL") == "chat"
    assert routes_of("run=a", "severity=info", "alertname=StalenessDominates") == "nobody"
    assert routes_of("run=a", "severity=none", "alertname=Evidence", "alert=ChiSquare", "of=critical") == "nobody"
    assert routes_of("severity=critical", "alertname=ServiceDown") == "page"
    assert routes_of("severity=warning", "alertname=StoreSlow") == "chat"


def test_of_many_alerts_the_one_that_speaks_is_told_and_who_takes_its_place_once_it_does_not_wait(
    tmp_path: Path,
) -> None:
    root, warning, other = ("MismatchKL", "critical"), ("MismatchKL", "warning"), ("ChiSquare", "critical")
    apart = ("LengthSurge", "warning")
    breaches = {
        root: 3,
        warning: 9,
        other: 3,
        ("TotalOffPolicy", "critical"): 3,
        ("RatioTail", "critical"): 2,
        apart: 3,
    }
    roots = {root: 1, apart: 1}
    with (
        webhook_receiver() as receiver,
        exposing(lambda: exposition(breaches, roots)) as target,
        running_alertmanager(tmp_path, receiver.url) as alertmanager,
        running_prometheus(tmp_path, target, alertmanager),
    ):
        wait_for(lambda: receiver.of("/page") and receiver.of("/chat"))
        roots.update({other: 0})
        breaches.update({root: 0})
        wait_for(lambda: len(receiver.of("/page")) == 2)
        breaches.update({apart: 0})
        wait_for(lambda: len(receiver.of("/chat")) == 2)
        roots.update({other: 1})
        wait_for(lambda: len(receiver.of("/page")) == 3)
    assert firing(receiver, "/page") == [{root}, set(), {other}]
    assert firing(receiver, "/chat") == [{apart}, set()]
    assert receiver.of("/page")[0]["groupLabels"] == {"run": "r"}


def test_a_service_that_does_not_say_which_alert_speaks_is_told_of_by_half_and_severity(tmp_path: Path) -> None:
    critical, warning, apart = ("MismatchKL", "critical"), ("ChiSquare", "warning"), ("LengthSurge", "warning")
    breaches = {critical: 3}
    with (
        webhook_receiver() as receiver,
        exposing(lambda: exposition(breaches, {})) as target,
        running_alertmanager(tmp_path, receiver.url) as alertmanager,
        running_prometheus(tmp_path, target, alertmanager),
    ):
        # Alertmanager holds back by what it has heard of: the critical one first, however busy the machine is.
        wait_for(lambda: receiver.of("/page"))
        breaches.update({("MismatchKL", "warning"): 3, warning: 3, apart: 3})
        wait_for(lambda: receiver.of("/chat"))
        breaches.update({critical: 0, ("MismatchKL", "warning"): 0})
        wait_for(lambda: len(receiver.of("/chat")) == 2)
    assert firing(receiver, "/page")[0] == {critical}
    assert firing(receiver, "/chat") == [{apart}, {apart, warning}]


def firing(receiver: Receiver, path: str) -> list[set[tuple[str, str]]]:
    """Alert and severity of what each notification says to fire; one that has ended may be said again with others."""
    return [
        {
            (alert["labels"]["alertname"], alert["labels"]["severity"])
            for alert in document["alerts"]
            if alert["status"] == "firing"
        }
        for document in receiver.of(path)
    ]
