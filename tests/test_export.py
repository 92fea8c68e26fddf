"""`offpolicy-monitor export` writes dashboards and rules that link to where the user reaches the service."""

import json
from pathlib import Path

import pytest
from offpolicy_monitor.cli import main
from offpolicy_monitor.export import DEFAULT_SERVICE_URL, checked_url, export

from scripts.prometheus import rule_files

ROOT = Path(__file__).resolve().parent.parent
URL = "https://monitor.example.com/offpolicy"


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def shipped(pattern: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in (ROOT / "dashboards").glob(pattern)}


def test_without_a_url_the_shipped_files_are_written(tmp_path: Path) -> None:
    export("grafana", tmp_path / "grafana")
    export("prometheus", tmp_path / "prometheus")
    assert contents(tmp_path / "grafana") == shipped("grafana/*.json")
    assert contents(tmp_path / "prometheus") == shipped("prometheus/*.rules.yaml")


def test_exported_rules_are_those_that_are_rendered_for_the_url(tmp_path: Path) -> None:
    export("prometheus", tmp_path, URL)
    assert contents(tmp_path) == rule_files(URL)


def test_exported_dashboards_link_to_the_url_and_differ_in_nothing_else(tmp_path: Path) -> None:
    export("grafana", tmp_path, URL)
    for name, text in contents(tmp_path).items():
        variable = json.loads(text)["templating"]["list"][-1]
        assert (variable["name"], variable["query"], variable["current"]["value"]) == ("service_url", URL, URL)
        assert DEFAULT_SERVICE_URL not in text
        assert text.replace(URL, DEFAULT_SERVICE_URL) == (ROOT / "dashboards" / "grafana" / name).read_text()


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "grafana", "--to", str(tmp_path), "--service-url", URL + "/"]) == 0
    assert capsys.readouterr().out.splitlines() == sorted(str(path) for path in tmp_path.iterdir())
    assert f'"query": "{URL}"' in (tmp_path / "offpolicy-run.json").read_text()


def test_a_slash_at_the_end_of_the_url_is_left_out() -> None:
    assert checked_url("http://10.0.0.5:8900/") == "http://10.0.0.5:8900"


@pytest.mark.parametrize(
    "url",
    [
        "monitor:8900",
        "ftp://monitor",
        "http://",
        'http://monitor/"',
        "http://monitor/\n",
        "http://m/#top",
        "http://m/$x",
    ],
)
def test_what_links_cannot_begin_with_is_a_wrong_command_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "prometheus", "--to", str(tmp_path), "--service-url", url])
    assert ended.value.code == 2
    assert "--service-url" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_wrong_setup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["export", "grafana", "--to", str(tmp_path / "file" / "folder")]) == 3
    assert "cannot be written" in capsys.readouterr().err
