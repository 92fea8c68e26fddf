"""What `show --csv` writes is numbers under names of figures, whoever posted the run and whoever answers."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from offpolicy_monitor.backtest.tables import read
from offpolicy_monitor.cli import main
from offpolicy_monitor.figures import is_known
from offpolicy_monitor.vocabulary import TEXT

from tests.client.fakes import Fake, serving
from tests.fixtures.http_stub import Asked, Said
from tests.fixtures.live import Service
from tests.fixtures.planted import Planted, ask, serving_planted

Printed = pytest.CaptureFixture[str]
#: Formulas, quotes and delimiters, a line break, and letters that turn a line round.
TEXTS = (
    '=HYPERLINK("http://evil.example","x")', "+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", 'a,"b";c', "a\u2028b",
    "\u202egpj",
)  # fmt: skip
#: Those that a service stores.
STORED = [text for text in TEXTS if re.fullmatch(TEXT, text)]
HOSTILE = Planted("hostile-1", steps=6, labels={text: text for text in STORED}, ids=STORED[0])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a run whose labels and ids are hostile."""
    with serving_planted(tmp_path_factory, "hostile", [HOSTILE]) as service:
        yield service


def written(printed: Printed, url: str, run: str) -> tuple[str, list[list[str]]]:
    """What the command writes, and its rows as Python's own reader has them."""
    assert main(["show", run, "--csv", "--url", url]) == 0
    text = printed.readouterr().out
    return text, list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_the_csv_of_a_hostile_run_is_its_figures_digit_by_digit(
    hostile: Service, tmp_path: Path, capsys: Printed
) -> None:
    assert ask(hostile.url, "/v1/runs/hostile-1")["labels"] == {text: text for text in STORED}
    text, (names, *rows) = written(capsys, hostile.url, "hostile-1")
    assert names[:2] == ["step", "policy_version"] and len(names) > 40
    assert all(is_known(name) for name in names[2:])
    assert [row[0] for row in rows] == [str(step) for step in range(6)]
    (tmp_path / "history.csv").write_text(text)
    table = read(tmp_path / "history.csv")
    assert list(table.columns) == names[1:]
    negative = 0
    for place, name in enumerate(names[1:], 1):
        query = f"?field={name}&by=step"
        series = ask(hostile.url, f"/v1/runs/hostile-1/series{query}")
        told = {step: value for step, value in zip(series["step"], series["value"], strict=True) if value is not None}
        assert {int(row[0]): float(row[place]) for row in rows if row[place]} == told == table.numbers(name)
        negative += sum(row[place].startswith("-") for row in rows)
    assert negative, "a number below 0 begins with its sign"


def test_text_that_a_service_puts_in_place_of_names_and_numbers_is_left_out(tmp_path: Path, capsys: Printed) -> None:
    texts = [*TEXTS, "a\r\nb", 'a"', ",", "\tx", "", "Upper", "gaps.mismatch.k1\n"]

    def answer(asked: Asked) -> Said:
        parts = urlsplit(asked.path)
        if parts.path == "/v1/figures":
            return Said(200, {"figures": [{"path": path, "headline": True} for path in [*texts, "gaps.mismatch.k3"]]})
        if parts.path == "/v1/runs/r1":
            return Said(200, {"last_step": len(texts)})
        values: list[Any] = [*texts, -0.5, 1.0, True]
        steps = [*range(len(texts) + 1), "=1", 1]
        fields = parse_qs(parts.query, keep_blank_values=True)["field"]
        return Said(200, {"series": [{"field": field, "step": steps, "value": values} for field in fields]})

    fake = Fake()
    fake.answer = answer
    with serving(fake):
        text, rows = written(capsys, fake.url, "r1")
    assert rows == [["step", "policy_version", "gaps.mismatch.k3"], [str(len(texts)), "-0.5", "-0.5"]]
    assert not re.search(r"[^a-z0-9_.,\n-]", text)
    (tmp_path / "history.csv").write_text(text)
    assert read(tmp_path / "history.csv").numbers("gaps.mismatch.k3") == {len(texts): -0.5}
