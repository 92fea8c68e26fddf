"""What `make bench-check` calls a fall: a ratio more than a fifth worse than the committed one."""

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import check


def row(what: str, ratio: float | None, goal: str | None) -> dict[str, Any]:
    return {"what": what, "ratio": ratio, "goal": goal}


COMMITTED = [row("speed", 10.0, ">= 8"), row("cost", 10.0, "<= 20"), row("plain", 10.0, None)]


@pytest.mark.parametrize(
    ("speed", "cost", "fallen"),
    [(10.0, 10.0, []), (8.1, 12.4, []), (20.0, 2.0, []), (7.9, 10.0, ["speed"]), (10.0, 12.6, ["cost"])],
)
def test_a_ratio_that_is_a_fifth_worse_is_a_fall(speed: float, cost: float, fallen: list[str]) -> None:
    found = [row("speed", speed, ">= 8"), row("cost", cost, "<= 20"), row("plain", 0.1, None)]
    assert list(check.falls(COMMITTED, found)) == fallen


def test_a_ratio_without_a_goal_has_a_side_that_is_better() -> None:
    before = [row("gain", 10.0, None), row("overhead", 1.1, None)]
    now = [{**row("gain", 7.0, None), "better": "more"}, {**row("overhead", 1.5, None), "better": "less"}]
    assert list(check.falls(before, now)) == ["gain", "overhead"]
    assert (
        check.falls(before, [{**one, "better": {"more": "less", "less": "more"}[one["better"]]} for one in now]) == {}
    )


def test_what_a_part_measured_before_and_does_not_now_is_missing() -> None:
    before = [{**row("speed", 10.0, ">= 8"), "part": "a"}, {**row("cost", 9.0, "<= 20"), "part": "b"}]
    assert check.missing(before, [{**row("another", 1.0, None), "part": "a"}]).keys() == {"speed"}
    assert check.missing(before, [{**row("speed", None, ">= 8"), "part": "a"}]) == {}


def test_every_ratio_of_the_bench_has_a_side_that_is_better() -> None:
    """Of rows that are made where they stand: a ratio is given as the fourth, with a goal or a side."""
    for file in sorted(Path(check.__file__).parent.glob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Row" and len(call.args) == 4:
                assert {"goal", "better"} & {keyword.arg for keyword in call.keywords}, f"{file.name}:{call.lineno}"


def test_a_growth_that_misses_its_goal_is_a_fall_until_it_is_measured_again() -> None:
    def curve(power: float) -> list[dict[str, Any]]:
        last = {**row("growth", power, "<= 1.1"), "at": 100, "met": power <= 1.1, "part": "linear"}
        return [{**row("growth", None, None), "at": 10, "met": None, "part": "linear"}, last]

    assert list(check.falls(curve(1.0), curve(1.9))) == ["growth"]
    assert check.falls(curve(1.9), curve(1.0)) == {}
    assert check.falls(COMMITTED, check.at_its_best(COMMITTED, curve(1.9), lambda parts: curve(1.05))) == {}


def test_what_was_not_measured_now_has_not_fallen() -> None:
    assert check.falls(COMMITTED, [row("speed", None, ">= 8"), row("another", 1.0, ">= 8")]) == {}


def test_what_fell_is_measured_again_by_its_part_and_the_better_counts() -> None:
    found = [{**row("speed", 5.0, ">= 8"), "part": "a"}, {**row("cost", 9.0, "<= 20"), "part": "b"}]
    asked: list[list[str]] = []

    def measure(parts: Sequence[str]) -> check.Rows:
        asked.append(list(parts))
        return [{**row("speed", [4.0, 9.0][len(asked) - 1], ">= 8"), "part": "a"}, row("new", 1.0, ">= 8")]

    best = check.at_its_best(COMMITTED, found, measure)
    assert asked == [["a"], ["a"]]
    assert {each["what"]: each["ratio"] for each in best} == {"speed": 9.0, "cost": 9.0}
    slow = check.at_its_best(COMMITTED, found, lambda parts: [row("speed", 4.0, ">= 8")])
    assert list(check.falls(COMMITTED, slow)) == ["speed"]


@pytest.mark.parametrize(("cost", "status"), [(11.0, 0), (13.0, 1)])
def test_a_fall_is_the_exit_status_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cost: float, status: int
) -> None:
    before, now = tmp_path / "before.json", tmp_path / "now.json"
    before.write_text(json.dumps({"rows": COMMITTED}))
    now.write_text(json.dumps({"rows": [row("cost", cost, "<= 20")]}))
    monkeypatch.setattr("sys.argv", ["check", str(now), "--committed", str(before)])
    assert check.main() == status
    assert ("cost: 13, it was 10 (goal <= 20)" in capsys.readouterr().out) == bool(status)


def test_figures_of_a_processor_of_which_none_are_committed_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = tmp_path / "now.json"
    now.write_text(json.dumps({"machine": {"processor": "Z80 (8-bit)"}, "rows": COMMITTED}))
    monkeypatch.setattr("sys.argv", ["check", str(now)])
    assert check.main() == 2
    assert "committed/z80-8-bit.json" in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(check.COMMITTED.iterdir()), ids=lambda file: file.stem)
def test_the_committed_figures_have_ratios_to_compare(file: Path) -> None:
    report = json.loads(file.read_text())
    assert report["machine"]["commit"]
    assert check.committed_of(report["machine"]["processor"]) == file
    assert sum(row["ratio"] is not None and row["goal"] is not None for row in report["rows"]) >= 10
