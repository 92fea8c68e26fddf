"""The commands that ask, each once on a real service, as a person types it; and what they say where there is none."""

import json
import re
from urllib.request import urlopen

import numpy as np
import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.answers.advice import near
from offpolicy_monitor.answers.arguments import LEVELS
from offpolicy_monitor.cli import main
from offpolicy_monitor.methods import METHODS
from offpolicy_monitor.verdict.numbers import percent

from tests.client.fakes import Fake, serving
from tests.fixtures.http_stub import Said
from tests.fixtures.live import Service
from tests.fixtures.planted import ask
from tests.fixtures.service import free_port

ASKING = (["runs"], ["show", "drifting"], ["alerts"], ["diagnose", "drifting"], ["whatif", "drifting"])
Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def address(monkeypatch: pytest.MonkeyPatch, planted_two: Service) -> str:
    monkeypatch.setenv("OFFPOLICY_URL", planted_two.url)
    monkeypatch.delenv("COLUMNS", raising=False)
    return planted_two.url


def lines(printed: Printed, *arguments: str) -> list[str]:
    """What a command prints; it must succeed."""
    assert main(arguments) == 0
    return printed.readouterr().out.splitlines()


def document(printed: Printed, *arguments: str) -> dict:
    """The same as JSON."""
    found: dict = json.loads("\n".join(lines(printed, *arguments, "--json")))
    return found


def test_runs_are_listed_worst_first(capsys: Printed) -> None:
    shown = lines(capsys, "runs")
    assert shown[0] == "2 runs: 1 critical, 1 not judged"
    assert shown[3].startswith("■ Drifting") and "▂▂▂" in shown[3] and "██" in shown[3]


def test_a_pattern_chooses_runs(capsys: Printed) -> None:
    assert [run["run"] for run in document(capsys, "runs", "-q", "^you")["runs"]] == ["young"]
    assert lines(capsys, "runs", "-q", "^nothing") == ["No run yet."]


def test_a_run_is_shown_by_the_services_sentence_and_its_own_figures(capsys: Printed, address: str) -> None:
    said = ask(address, "/v1/runs/drifting/verdict")
    series = ask(address, "/v1/runs/drifting/series?field=gaps.mismatch.k3&by=step")
    shown = lines(capsys, "show", "drifting")
    assert shown[:3] == [f"■ {said['head']}", f"  {said['why']}", f"  Do: {said['action']}"]
    [row] = [line for line in shown if line.startswith("mismatch k3")]
    assert f" {series['value'][-1]:.2g} " in row
    assert re.search(r"■ critical +MismatchKL +open +32 +now", "\n".join(shown))
    assert shown[-1] == f"{address}/runs/drifting"


def test_alerts_are_those_of_all_runs_or_of_one(capsys: Printed) -> None:
    assert re.match(r"alerts: \d+ open", lines(capsys, "alerts")[0])
    assert lines(capsys, "alerts", "--run", "young") == ["No rule has fired."]
    assert {row["state"] for row in document(capsys, "alerts", "--state", "active")["alerts"]} == {"active"}


def test_a_diagnosis_names_causes_best_first(capsys: Printed, address: str) -> None:
    found = ask(address, "/v1/runs/drifting/diagnosis?from=32")["hypotheses"]
    shown = "\n".join(lines(capsys, "diagnose", "drifting", "--from", "32"))
    positions = [shown.index(f"  {one['title']}") for one in found]
    assert "Causes of the mismatch, steps 32 to 47" in shown and positions == sorted(positions)


def test_whatif_tells_the_share_and_the_setting_at_a_threshold(capsys: Printed, address: str) -> None:
    shown = lines(capsys, "whatif", "drifting", "--method", "icepop", "--bound", "upper", "--threshold", "2")
    [share] = ask(address, "/v1/runs/drifting/whatif?method=mask&threshold=2")["upper"]["masked_token_fraction"]
    assert shown[0].startswith(f"mask at mismatch, token, upper 2 would act on {share * 100:.1f}% of the tokens")
    assert "  slime     --use-tis" in shown and "  prime-rl  has no option for it" in shown
    assert "            --tis-clip 2" in shown and "            --tis-clip-low 0.5" in shown


def test_whatif_tries_a_method_where_no_row_runs_it(capsys: Printed) -> None:
    found = document(capsys, "whatif", "drifting", "--method", "opsm", "--level", "geometric", "--threshold", "0.3")
    assert (found["at"]["gap"], found["at"]["threshold"]) == ("total", [0.3])
    assert len(found["curve"]["threshold"]) > 8


def test_whatif_tries_the_row_of_the_run_where_nothing_is_named(capsys: Printed) -> None:
    assert lines(capsys, "whatif", "drifting")[0].startswith("opsm at total, geometric, delta 0.01 would act on ")


def test_whatif_tries_any_threshold_of_a_row_by_its_name(capsys: Printed) -> None:
    for bound, own in (("max", 0.05), ("mean", 0.001)):
        found = document(capsys, "whatif", "drifting", "--method", "trm", "--bound", bound)
        assert found["at"][bound]["threshold"][0] == own
    assert lines(capsys, "whatif", "drifting", "--method", "trm")[0].startswith("trm at total, sequence, mean 0.001 ")
    assert lines(capsys, "whatif", "drifting", "--method", "kpop")[0].startswith("kpop at total, token, phi 2 would ")
    assert main(["whatif", "drifting", "--method", "trm", "--bound", "upper"]) == 1
    assert "bound must be one of max, mean; got upper" in capsys.readouterr().err.replace(":", "")


@pytest.mark.parametrize("run", ["drifting", "young"])
def test_the_doctor_tells_what_the_service_found_and_its_status_is_whether_a_figure_is_wrong(
    capsys: Printed, address: str, run: str
) -> None:
    found = ask(address, f"/v1/runs/{run}/checks")
    wrong = any(one["severity"] == "warning" for one in found["findings"])
    assert main(["doctor", "--run", run]) == int(wrong)
    shown = capsys.readouterr().out
    assert all(f"Change: {one['change']}" in shown for one in found["findings"]) and found["findings"]
    assert main(["doctor", "--run", run, "--json"]) == int(wrong)
    assert json.loads(capsys.readouterr().out) == found


def test_json_is_what_the_api_answers(capsys: Printed, address: str) -> None:
    assert document(capsys, "alerts", "--run", "drifting") == ask(address, "/v1/alerts?run=drifting&merge=5&limit=500")
    shown = document(capsys, "show", "drifting")
    assert shown["verdict"] == ask(address, "/v1/runs/drifting/verdict")
    assert shown["run"] == ask(address, "/v1/runs/drifting")
    assert document(capsys, "diagnose", "drifting")["diagnosis"] == ask(address, "/v1/runs/drifting/diagnosis")


def test_a_narrow_terminal_is_not_overrun(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for command in ASKING[:4]:
        assert max(map(len, lines(capsys, *command)[:-1])) <= 60, command


def test_a_monitor_answers_the_same_in_python(address: str) -> None:
    with Monitor(address, "drifting") as monitor:
        assert monitor.verdict() == ask(address, "/v1/runs/drifting/verdict")
        assert monitor.verdict("young")["state"] == "too_early"
        assert monitor.diagnosis(first=32) == ask(address, "/v1/runs/drifting/diagnosis?from=32")
        assert monitor.checks() == ask(address, "/v1/runs/drifting/checks")
        assert monitor.alerts(state="active", merge=5) == ask(
            address, "/v1/alerts?run=drifting&state=active&merge=5&limit=1000"
        )["alerts"]  # fmt: skip
        assert {run["run"] for run in monitor.runs()} >= {"drifting", "young"}
        assert np.isfinite(monitor.series("gaps.mismatch.k3")["value"]).all()


def without_request(said: str, address: str) -> str:
    """What is said, without the one id of a request that it names: one of this very service."""
    with urlopen(f"{address}/v1/runs") as answer:
        process = answer.headers["X-Request-Id"].partition("-")[0]
    left, found = re.subn(rf" \(request {process}-\d+\)", "", said)
    assert found == 1, said
    return left


def test_a_refusal_is_told_in_the_services_words(capsys: Printed, address: str) -> None:
    assert main(["show", "nobody"]) == 1
    assert without_request(capsys.readouterr().err, address) == (
        "offpolicy-monitor: there is no run named nobody; `offpolicy-monitor runs` lists those that there are\n"
    )


@pytest.mark.parametrize("command", ["show", "diagnose", "whatif", "report", "alerts --run"])
def test_a_name_that_is_nearly_right_is_answered_with_the_one_that_is(
    command: str, capsys: Printed, address: str
) -> None:
    assert main([*command.split(), "Driftin"]) == 1
    said = without_request(capsys.readouterr().err, address)
    assert said == "offpolicy-monitor: there is no run named Driftin; did you mean drifting?\n"


REQUEST = {"X-Request-Id": "3f9a01bc-7"}


@pytest.mark.parametrize("command", [*ASKING, ["doctor", "--run", "r"], ["report", "r"], ["show", "r", "--csv"]])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Said(503, {"detail": "the database is away"}, REQUEST),
            "the database is away (request 3f9a01bc-7). Try again",
        ),
        (Said(401, {"detail": "no token"}, REQUEST), "no token (request 3f9a01bc-7). Set OFFPOLICY_TOKEN"),
        (Said(500, {"detail": "a defect"}, REQUEST), "a defect (request 3f9a01bc-7)"),
        (Said(422, {"detail": "no such thing"}, REQUEST), "no such thing (request 3f9a01bc-7)\n"),
    ],
    ids=["503", "401", "500", "422"],
)
def test_every_command_names_the_request_that_went_wrong(
    command: list[str], answer: Said, words: str, capsys: Printed
) -> None:
    fake = Fake()
    fake.answer = lambda asked: answer
    with serving(fake):
        assert main([*command, "--url", fake.url]) == 1
    assert words in capsys.readouterr().err


def test_the_levels_that_are_asked_for_are_those_of_the_catalogue() -> None:
    assert set(LEVELS) == {level for method in METHODS.values() for level in method.levels}


def test_names_that_are_near_have_letters_in_common_or_lie_within() -> None:
    names = ["llama-8b-grpo-v2", "llama-8b-grpo-v3", "qwen", "x" * 128]
    assert near("lama-8b-grpo-v2", names) == ["llama-8b-grpo-v2", "llama-8b-grpo-v3"]
    assert near("GRPO", names) == ["llama-8b-grpo-v2", "llama-8b-grpo-v3"]
    assert near("zzz", names) == []


def test_methods_are_tried_side_by_side(capsys: Printed) -> None:
    methods = ("--method", "opsm", "--method", "geometric_mask_wide")
    found = document(capsys, "whatif", "drifting", *methods)["methods"]
    alone = [document(capsys, "whatif", "drifting", "--method", name) for name in methods[1::2]]
    assert found == alone
    shown = lines(capsys, "whatif", "drifting", *methods)
    assert [line.split()[0] for line in shown[:3]] == ["method", "opsm", "mask"]
    for row, one in zip(shown[1:3], alone, strict=True):
        share = one["at"].get("upper", one["at"])["masked_token_fraction"][0]
        assert f" {percent(share)} " in row
    assert sum("the setting" in line for line in shown) == 2


def test_a_service_that_lacks_a_route_is_of_another_release(capsys: Printed) -> None:
    fake = Fake()
    answer = {"type": "urn:offpolicy-monitor:problem:unknown-path", "detail": "there is nothing at this path"}
    fake.answer = lambda asked: Said(404, answer)
    with serving(fake):
        assert main(["diagnose", "drifting", "--url", fake.url]) == 1
    assert "is of another release than this command: there is nothing at this path" in capsys.readouterr().err


def test_an_unknown_method_is_refused_with_those_that_there_are(capsys: Printed) -> None:
    assert main(["whatif", "drifting", "--method", "magic"]) == 1
    assert "must be one of truncate, mask" in capsys.readouterr().err


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_without_a_service_each_says_what_to_do(command: list[str], capsys: Printed) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main([*command, "--url", url]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"offpolicy-monitor: no service answers at {url}: ")
    assert "Start one with `offpolicy-monitor serve`, or name its address by --url" in said


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Said(503, {"detail": "the database is away"}), "cannot answer now: the database is away. Try again"),
        (Said(200, {"hello": "world"}), "answers without 'runs': it is of another release than this command"),
        (Said(200, text="<html>"), "is no service of offpolicy-monitor"),
    ],
)
def test_a_service_that_cannot_answer_is_status_1(answer: Said, words: str, capsys: Printed) -> None:
    fake = Fake()
    fake.answer = lambda asked: answer
    with serving(fake):
        assert main(["runs", "--url", fake.url]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["show"], ["show", "../etc"], ["whatif", "r", "--gap", "wide"], ["whatif", "r", "--threshold", "nan"],
     ["diagnose", "r", "--from", "-1"], ["alerts", "--state", "shut"], ["runs", "--timeout", "0"]],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_command_line_asks_nobody(arguments: list[str], capsys: Printed) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_an_address_that_is_none_is_a_wrong_setup(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFPOLICY_URL", "monitor:8900")
    assert main(["runs"]) == 3
    assert "'monitor:8900' is no address" in capsys.readouterr().err
