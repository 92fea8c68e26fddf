"""Tables fit the terminal: what can be cut is cut, what can be left out is left out, the rest stands whole."""

from offpolicy_monitor.answers.style import Style
from offpolicy_monitor.answers.table import Column, table

COLUMNS = [
    Column("", ["✓ fine", "■ bad"], colours=["healthy", "critical"]),
    Column("run", ["a-long-name-of-a-run", "b"], cut=8),
    Column("step", ["7", "1,024"], right=True),
    Column("note", ["nothing", "much"], optional=1),
    Column("empty", ["", ""]),
]


def test_columns_stand_below_each_other_and_an_empty_one_is_left_out() -> None:
    assert table(COLUMNS, Style()) == [
        "        run                    step  note",
        "✓ fine  a-long-name-of-a-run      7  nothing",
        "■ bad   b                     1,024  much",
    ]


def test_a_narrow_terminal_gets_shorter_cells_and_then_fewer_columns() -> None:
    assert table(COLUMNS, Style(34)) == [
        "        run          step  note",
        "✓ fine  a-long-na…      7  nothing",
        "■ bad   b           1,024  much",
    ]
    assert table(COLUMNS, Style(24)) == [
        "        run         step",
        "✓ fine  a-long-n…      7",
        "■ bad   b          1,024",
    ]


def test_a_colour_changes_no_column() -> None:
    painted = table(COLUMNS, Style(colours=True))
    assert painted[1] == "\x1b[32m✓ fine\x1b[0m  a-long-name-of-a-run      7  nothing"


def test_a_cell_cannot_move_the_cursor() -> None:
    assert table([Column("run", ["\x1b[1A"])], Style()) == ["run", "?[1A"]


def test_no_column_is_no_line() -> None:
    assert table([Column("run", [])], Style()) == []
