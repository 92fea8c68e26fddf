"""Log lines: one object per line, and client text that cannot forge a line."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog
from offpolicy_monitor.logs import escaped

from tests.fixtures.logs import configured_logs


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged as JSON while the test runs; what was configured before is restored."""
    stream = io.StringIO()
    with configured_logs("info", "json", stream):
        yield stream


def test_a_line_is_one_json_object_with_its_fields(lines: io.StringIO) -> None:
    structlog.get_logger("here").info("stored", run="r1", tokens=5)
    line = json.loads(lines.getvalue())
    assert (line["event"], line["run"], line["tokens"]) == ("stored", "r1", 5)
    assert (line["level"], line["logger"]) == ("info", "here")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])


def test_lines_of_other_libraries_look_alike(lines: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").warning("bad request from %s", "nobody")
    line = json.loads(lines.getvalue())
    assert (line["event"], line["level"]) == ("bad request from nobody", "warning")


def test_control_characters_in_a_field_are_escaped(lines: io.StringIO) -> None:
    structlog.get_logger("here").info("refused", run="a\nlevel=error\x1b[2J\u202e")
    shown = lines.getvalue()
    assert json.loads(shown)["run"] == "a\\nlevel=error\\x1b[2J\\u202e"
    assert shown.count("\n") == 1


def test_an_access_token_shows_its_id_alone_wherever_it_was_sent(lines: io.StringIO) -> None:
    token = f"opm_0123456789ab_{'c0ffee' * 8}"
    structlog.get_logger("here").info("request", run=token, detail=f"no run {token[:40]!r}... nor {token.upper()}")
    line = json.loads(lines.getvalue())
    assert line["run"] == "opm_0123456789ab_..."
    assert line["detail"] == "no run 'opm_0123456789ab_...'... nor OPM_0123456789AB_..."


def test_a_traceback_keeps_its_lines_and_loses_its_control_characters(lines: io.StringIO) -> None:
    try:
        raise ValueError("bad \x1b[31m value")
    except ValueError as error:
        structlog.get_logger("here").error("defect", exc_info=error)
    shown = json.loads(lines.getvalue())["exception"]
    assert "\n" in shown and "\x1b" not in shown and "bad \\x1b[31m value" in shown


def test_less_severe_lines_are_not_shown(lines: io.StringIO) -> None:
    structlog.get_logger("here").debug("noise")
    assert lines.getvalue() == ""


def test_text_that_prints_is_left_alone() -> None:
    assert escaped("log-prob π ∈ [0, 1]") == "log-prob π ∈ [0, 1]"


def test_a_logger_that_has_spoken_follows_the_next_configuration(lines: io.StringIO) -> None:
    logger, later = structlog.get_logger("here"), io.StringIO()
    logger.info("first")
    with configured_logs("info", "json", later):
        logger.info("second")
    logger.info("third")
    assert [json.loads(line)["event"] for line in later.getvalue().splitlines()] == ["second"]
    assert [json.loads(line)["event"] for line in lines.getvalue().splitlines()] == ["first", "third"]
