"""What a terminal gets: its width, colours where it shows them, and nothing that it would obey."""

import io

import pytest
from offpolicy_monitor.answers.style import ENDLESS, Style, clean, style_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "colours"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    stream: io.StringIO, environment: dict[str, str], colours: bool
) -> None:
    assert style_of(stream, environment).colours is colours


def test_lines_in_a_pipe_are_left_whole_unless_columns_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert style_of(io.StringIO(), {}).width == ENDLESS
    monkeypatch.setenv("COLUMNS", "44")
    assert style_of(io.StringIO(), {"COLUMNS": "44"}).width == 44


def test_a_colour_is_laid_over_text_that_is_there_without_it() -> None:
    assert Style(colours=True).paint("✓ Healthy", "healthy") == "\x1b[32m✓ Healthy\x1b[0m"
    assert Style().paint("✓ Healthy", "healthy") == "✓ Healthy"
    assert Style(colours=True).paint("", "healthy") == ""


def test_text_is_wrapped_to_the_terminal_and_indented() -> None:
    assert Style(24).wrapped("one two three four five six", "  ") == ["  one two three four", "  five six"]
    assert Style().wrapped("one two", "  ") == ["  one two"]


def test_what_a_terminal_would_obey_is_taken_out_of_others_text() -> None:
    assert clean("a\x1b[2Jb\nc\u202ed") == "a?[2Jb?c?d"
