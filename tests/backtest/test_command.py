"""The command as a person types it: timeline, JSON, exit status, own thresholds, stored runs."""

import json
from pathlib import Path

import pytest
from offpolicy_monitor.cli import main

from tests.fixtures.live import Service
from tests.fixtures.planted import ask

Printed = pytest.CaptureFixture[str]
KEYS = ["alert", "severity", "step", "until", "value", "message", "inhibited_by"]


@pytest.fixture
def stale(tmp_path: Path) -> str:
    """A history with a lag that is critical from step 2 on."""
    path = tmp_path / "stale.csv"
    path.write_text("step,policy_lag.max\n0,1\n1,1\n2,20\n")
    return str(path)


def rules(tmp_path: Path, text: str) -> str:
    path = tmp_path / "rules.json"
    path.write_text(text)
    return str(path)


def test_a_timeline_is_printed_and_something_critical_is_status_1(stale: str, capsys: Printed) -> None:
    assert main(["backtest", stale]) == 1
    out = capsys.readouterr().out
    assert out.startswith("3 steps, 0 to 2, 1 figures, profile dense_bf16\n")
    assert "■ critical  StaleData" in out
    assert "evidence of" in out


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_no_name_of_a_column_moves_the_terminal_or_turns_a_line_round(
    options: list[str], tmp_path: Path, capsys: Printed
) -> None:
    moves = "\x1b[2J\u202e"
    path = tmp_path / "hostile.csv"
    names = ["step", f"{moves}/rollout_corr/k3_kl", f"a{moves}/rollout_corr/k3_kl", f"{moves}lr"]
    path.write_text(",".join(names) + "\n0,0.001,0.001,1\n")
    assert main(["backtest", str(path), *options]) == 0
    printed = "".join(capsys.readouterr())
    assert "?[2J?/rollout_corr/k3_kl is gaps.mismatch.k3" in printed
    assert "a?[2J?/rollout_corr/k3_kl is left out" in printed
    assert ("not looked at: ?[2J?lr" in printed) == (not options)
    assert all(letter.isprintable() or letter == "\n" for letter in printed)


def test_json_is_the_alerts_alone(stale: str, capsys: Printed) -> None:
    assert main(["backtest", stale, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["alerts"]
    assert [list(alert) for alert in found["alerts"]] == [KEYS, KEYS]
    assert found["alerts"][0]["step"] == 2 and found["alerts"][0]["until"] is None


def test_own_thresholds_are_what_patch_takes(stale: str, tmp_path: Path, capsys: Printed) -> None:
    own = rules(tmp_path, '{"StaleData": {"critical": null, "warning": 30}}')
    assert main(["backtest", stale, "--rules", own]) == 0
    assert "No rule would have fired." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "rules.json is no JSON"),
        ('{"Nothing": {}}', "alerts.Nothing: is no rule"),
        ('{"StaleData": {"warning": "x"}}', "alerts.StaleData.warning"),
    ],
)
def test_bad_thresholds_are_refused(text: str, said: str, stale: str, tmp_path: Path, capsys: Printed) -> None:
    assert main(["backtest", stale, "--rules", rules(tmp_path, text)]) == 3
    assert said in capsys.readouterr().err


def test_a_bad_file_is_status_3_and_no_file_is_status_2(tmp_path: Path, capsys: Printed) -> None:
    assert main(["backtest", str(tmp_path / "none.csv")]) == 3
    assert "none.csv cannot be read" in capsys.readouterr().err
    assert main(["backtest"]) == 2
    assert "give a FILE" in capsys.readouterr().err


def test_a_stored_run_and_its_csv_are_judged_as_the_service_did(
    planted_two: Service, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFPOLICY_URL", planted_two.url)
    # As they were judged: `alerts` shows people breaches that follow each other closely as one.
    told = ask(planted_two.url, "/v1/alerts?run=drifting&limit=100")["alerts"]
    active = [row for row in told if row["active_step"] is not None]
    service = {(row["alert"], row["severity"], row["active_step"], row["inhibited_by"]) for row in active}
    assert main(["backtest", "--run", "drifting", "--json"]) == 1
    run = json.loads(capsys.readouterr().out)["alerts"]
    assert {(row["alert"], row["severity"], row["step"], row["inhibited_by"]) for row in run} == service
    assert main(["show", "drifting", "--csv"]) == 0
    path = tmp_path / "drifting.csv"
    path.write_text(capsys.readouterr().out)
    assert "gaps.mismatch.k3" in path.read_text().splitlines()[0].split(",")
    assert main(["backtest", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["alerts"] == run
