"""docs/protocol.md names every figure of the catalogue by its whole path, each in its section, and its unit in tables.

How the page is read: in prose a name between backticks is a figure, and `name`: {`one`, `other`} has figures below it;
`name` and `name2` before a brace both have them. A table with the column `unit` has paths and units in its first two
columns, one with the column `mark` names and what is below them. Columns that explain are not read, nor other tables.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest
from offpolicy_monitor.figures import FIGURES, Figure, is_known
from offpolicy_monitor.store.rows.step_columns import READERS

PAGE: Final = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
OF_A_BATCH: Final = "Fields of a batch"
#: By section the fields of a step that it is of, and what it names beside figures. What no other is of, is of a batch.
SECTIONS: Final[dict[str, tuple[set[str], set[str]]]] = {
    OF_A_BATCH: (set(), set()),
    "Fields of a gap": ({"gaps"}, {"d", "sequence.log_geometric_ratio"}),
    "Fields of routing": ({"routing"}, {"routing"}),
    "Fields of the noise floor": (
        {"noise_floor"},
        {"noise_floor", "excluded_tokens", "suspect_tokens", "engine_logprobs", "old_logprobs_repeat"},
    ),
    "Fields of the support": (
        {"support"},
        {
            *("d", "support", "mismatch", "total", "staleness", "gaps", "methods"),
            *("old_support_logprobs", "support_logprobs"),
        },
    ),
    "Fields of the mismatch's lag": (
        {"mismatch_lag"},
        {
            *("mismatch_lag", "lagged_mismatch", "pi_old", "policy_version"),
            *("versions.staleness_curve.mismatch", "intercept"),
        },
    ),
    "Fields of a method": ({"methods", "correction"}, {"method", "gap", "level", "length_bias.unit", "correction"}),
    "Fields of breakdowns": (
        {"breakdowns"},
        {
            *("breakdowns", "outliers", "versions", "signature"),
            *("mu_probability", "position", "length", "lag", "advantage_sign", "turn", "shard", "first", "last"),
        },
    ),
    "Fields of outliers": ({"outliers"}, {"outliers", "dimension", "bucket"}),
    "Fields of versions": ({"versions"}, {"versions", "policy_versions", "policy_version"}),
    "Fields of the signature": (
        {"signature"},
        {
            *("signature", "grid.column", "grid.sampling", "grid.old", "grid.difference"),
            *("decimals.column", "decimals.sampling", "decimals.old", "learned.advantages", "replica.name"),
        },
    ),
    "Fields of the calibration": ({"calibration"}, {"calibration", "sampling_logprobs"}),
}
_NAME: Final = re.compile(r"`([a-z][a-z0-9_]*(?:\.(?:[a-z0-9_]+|\{[a-z]+\}))*)`")
#: Names, what is said of them, and in braces the names below each of them.
_GROUP: Final = re.compile(r"((?:`[a-z0-9_]+`(?:, | and ))*`[a-z0-9_]+`)([^`.{}]*)\{([^{}]*)\}")

Rows = list[list[str]]


def text_of(page: str, section: str) -> str:
    """A section, without the lines of its tables."""
    return "\n".join(line for line in lines_of(page, section) if not line.startswith("|"))


def lines_of(page: str, section: str) -> list[str]:
    """All lines of a section."""
    return page.split(f"### {section}\n")[1].split("\n## ")[0].split("\n### ")[0].splitlines()


def tables_of(lines: Iterable[str]) -> Iterator[tuple[list[str], Rows]]:
    """The head and the rows of each table among some lines."""
    for block in re.findall(r"(?:^\|.*\n?)+", "\n".join(lines), re.M):
        head, _, *rows = ([cell.strip() for cell in line[1:-1].split(" |")] for line in block.splitlines())
        yield head, rows


def fixed(path: str) -> str:
    """A path without what stands for a gap, an index and the like."""
    return ".".join(key for key in path.split(".") if not key.startswith("{"))


def names(text: str) -> list[str]:
    """The names between backticks."""
    return [fixed(name) for name in _NAME.findall(text)]


def units_in(page: str, section: str) -> dict[str, str]:
    """{path: unit} of what the tables of a section say the unit of."""
    rows = [row for head, rows in tables_of(lines_of(page, section)) if head[1] == "unit" for row in rows]
    found = [(path, unit) for named, unit, *_ in rows for path in names(named)]
    assert len(dict(found)) == len(found)
    return dict(found)


def named_in(page: str, section: str) -> set[str]:
    """The paths that a section names, below the field that it is of."""
    text, found = text_of(page, section), set(units_in(page, section))
    found |= {
        f"{mark}.{name}" for group in _GROUP.findall(text) for mark in names(group[0]) for name in names(group[2])
    }
    for head, rows in tables_of(lines_of(page, section)):
        if head[0] == "mark":
            found |= {f"{mark}.{name}" for marks, fields in rows for mark in names(marks) for name in names(fields)}
    return found | set(names(_GROUP.sub("", text)))


def section_of(figure: Figure) -> str:
    """The section that a figure is named in."""
    first = figure.path.partition(".")[0]
    return next((section for section, (fields, _) in SECTIONS.items() if first in fields), OF_A_BATCH)


def catalogued(section: str) -> dict[str, set[str]]:
    """{path: units} of a section's figures, without the field that all of them are below."""
    found: dict[str, set[str]] = {}
    for figure in FIGURES:
        if section_of(figure) == section:
            path = figure.path if section == OF_A_BATCH else figure.path.partition(".")[2]
            found.setdefault(fixed(path), set()).add(figure.unit)
    return found


@pytest.mark.parametrize("section", SECTIONS)
def test_protocol_page_names_every_figure_in_its_section_and_no_other(section: str) -> None:
    named, beside = named_in(PAGE, section), SECTIONS[section][1]
    assert beside - named == set()
    assert named - beside == catalogued(section).keys()


@pytest.mark.parametrize("section", SECTIONS)
def test_a_unit_in_a_table_is_that_of_the_catalogue(section: str) -> None:
    units = {path: {unit} for path, unit in units_in(PAGE, section).items()}
    expected = catalogued(section)
    assert units == {path: expected[path] for path in units}


def test_every_table_of_units_is_read() -> None:
    tables = [head for head, _ in tables_of(PAGE.splitlines()) if "unit" in head]
    read = [head for section in SECTIONS for head, _ in tables_of(lines_of(PAGE, section)) if head[1] == "unit"]
    assert tables == read and len(read) == 2
    assert sum(len(units_in(PAGE, section)) for section in SECTIONS) > 25


def test_every_section_of_fields_is_compared() -> None:
    assert re.findall(r"^### (Fields of .*)$", PAGE, re.M) == list(SECTIONS)


SECTION: Final = """### Fields of x

`a` (of `b`), `c`,
`d`: {`a`, `e` (less)}; also `f` and `g`, all of them: {`h`}. `i.j` too, not `k l`.

| field | unit | what it is |
|---|---|---|
| `m.n`, `o.{gap}.p` | nats | less `q` |
| `r` |  | - |

| mark | fields |
|---|---|
| `s`, `t` | `u`: of `v` |

| part | d |
|---|---|
| `w` | `x` |
"""


def test_a_section_is_read_by_whole_paths_and_their_units() -> None:
    assert units_in(SECTION, "Fields of x") == {"m.n": "nats", "o.p": "nats", "r": ""}
    assert named_in(SECTION, "Fields of x") == {
        *("a", "b", "c", "d.a", "d.e", "f.h", "g.h", "i.j", "m.n", "o.p", "r", "s.u", "s.v", "t.u", "t.v"),
    }


def test_every_field_that_the_page_asks_for_can_be_plotted() -> None:
    asked = set(re.findall(r'\bfield(?:=|": ")([a-z][\w.]*)', PAGE))
    assert {"gaps.mismatch.k3", "correction.masked_token_fraction", "verdict"} <= asked
    assert [path for path in sorted(asked) if not is_known(path) and path not in READERS] == []
