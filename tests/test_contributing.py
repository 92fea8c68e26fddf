"""The recipes of CONTRIBUTING.md work as written: a copy of the package in which they were followed answers.

What each block adds goes into the file that its first line names, before the text that MARKS has for it; what stands
before `...` in it are imports. Nothing else is changed, so a recipe that forgets a file fails here.
"""

import json
import os
import re
import shutil
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, Final

import pytest

from tests.fixtures.forks import ended

ROOT: Final = Path(__file__).resolve().parent.parent
#: File -> the text before which its block goes: at the end of a list, or before an entry of it; none of a new file.
MARKS: Final = {
    "methods/catalogue.py": "    )\n}  # fmt: skip\n",
    "summary/gap.py": '        "k1": lambda sums: -sums["log_ratio"] / sums["tokens"],\n',
    "summary/batch.py": '    ),\n    "what was sent",\n',
    "measure/counts.py": "            **_suspects(batch),\n",
    "figures/rows/gaps.py": '    Figure("k1", "nats", "mean of `-d`"',
    "summary/tables/rewards.py": "",
    "summary/tables/__init__.py": "    whatif.KIND,\n",
    "alerts/rules.py": ")  # fmt: skip\n\n_BY_NAME",
}
#: A kind of table that declares its rows and nothing else: what is checked of them follows.
OUTSIDE: Final = """
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.rows import Table, count

ROWS = (count("tokens", at_most="gaps/{gap}/tokens"),)
TABLES = tuple(Table(path, ROWS, filled=True, since=8) for path in ("outside/{gap}", "outside/{row}/{gap}"))
KIND = Kind("outside", TABLES)
"""
#: Run by a fork that has torch and all libraries: it imports the package anew, from the copy.
ASK: Final = """
import gc, runpy, sys
gc.disable()  # while modules are loaded nothing becomes garbage: to look for it takes a fifth of the whole
service, root, database = sys.argv[1:]
for name in [name for name in sys.modules if name.partition(".")[0] == "offpolicy_monitor"]:
    del sys.modules[name]
sys.path[:0] = [service, root]
sys.argv = ["contributed", database]
runpy.run_module("tests.contributed", run_name="__main__")
"""
#: How deep a block stands there, in spaces, if not 4.
DEPTHS: Final = {"methods/catalogue.py": 8, "summary/gap.py": 8, "measure/counts.py": 12}


def blocks() -> dict[str, str]:
    """The code blocks of the page by the file that they are for."""
    found = {}
    for text in re.findall(r"^ *```python\n(.*?)^ *```$", (ROOT / "CONTRIBUTING.md").read_text(), re.S | re.M):
        first, _, rest = dedent(text).partition("\n")
        found[first.removeprefix("# service/offpolicy_monitor/")] = rest
    return found


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source root in which the recipes were followed."""
    root = tmp_path_factory.mktemp("contributed")
    package = root / "service" / "offpolicy_monitor"
    # With what is compiled of it, which is of the same times; not with what another process writes of that now.
    shutil.copytree(ROOT / "service" / "offpolicy_monitor", package, ignore=shutil.ignore_patterns("*.pyc.*"))
    for folder in ("migrations", "dashboards", "docs"):
        (root / folder).symlink_to(ROOT / folder)
    for name, block in blocks().items():
        file, mark = package / name, MARKS[name]
        if not mark:
            assert not file.exists()
            file.write_text(block)
            continue
        imports, dots, rest = block.rpartition("...\n")
        text = file.read_text()
        assert text.count(mark) == 1, f"{name} has no single {mark!r}"
        assert text.count("\n\nfrom ") > 0 or not dots
        text = text.replace(mark, indent(rest, " " * DEPTHS.get(name, 4)) + mark)
        file.write_text(text.replace("\n\nfrom ", f"\n\n{imports}from ", 1))
    tables = package / "summary" / "tables"
    (tables / "outside.py").write_text(OUTSIDE)
    text = (tables / "__init__.py").read_text().replace("    outliers,\n", "    outliers,\n    outside,\n", 1)
    (tables / "__init__.py").write_text(
        text.replace("    outliers.KIND,\n", "    outliers.KIND,\n    outside.KIND,\n", 1)
    )
    return root


@pytest.fixture(scope="module")
def answers(followed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a service of that package answers to tests/contributed.py."""
    database = tmp_path_factory.mktemp("database")
    arguments = ["-c", ASK, str(followed / "service"), str(ROOT), str(database)]
    status, said = ended(arguments, os.environ, timeout=240)
    assert status == 0, said[-4000:]
    found: dict[str, Any] = json.loads((database / "answers.json").read_text())
    return found


def test_the_recipes_name_the_files_that_they_change() -> None:
    assert blocks().keys() == MARKS.keys()


def test_the_copy_is_what_answers(answers: dict[str, Any], followed: Path) -> None:
    assert Path(answers["package"]).is_relative_to(followed)


def test_a_method_that_is_one_row_is_evaluated_kept_and_asked_what_if(answers: dict[str, Any]) -> None:
    share = answers["share_beyond"]
    assert 0.1 < share < 0.9
    assert answers["evaluated"]["masked_token_fraction"] == share
    assert answers["ingested"]["masked_token_fraction"] == share
    assert answers["whatif"]["masked_token_fraction"] == [pytest.approx(share, abs=answers["whatif"]["max_error"])]
    assert answers["series"]["methods.off_band.masked_token_fraction"] == [share]
    assert [row["parameter"] for row in answers["recommended"]] == ["threshold"]
    assert answers["refused"] == [422, ["methods[0].threshold"]]


def test_a_figure_that_is_one_row_is_answered_and_plotted(answers: dict[str, Any]) -> None:
    assert answers["gap"]["changed_fraction"] == 1 - answers["gap"]["exact_fraction"] > 0.5
    assert answers["series"]["gaps.total.changed_fraction"] == [answers["gap"]["changed_fraction"]]


def test_a_table_that_is_declared_counted_and_read_is_stored_merged_and_plotted(answers: dict[str, Any]) -> None:
    assert answers["merged"]["rewards"] == {"negative_fraction": 5 / 12}
    assert answers["plotted"]["value"] == [None, 5 / 12]
    assert answers["lacking"]["rewards"] is None


def test_what_is_new_of_a_step_is_described_in_the_document_of_the_api(answers: dict[str, Any]) -> None:
    rewards, gaps = answers["described"]["rewards"], answers["described"]["gaps"]
    assert rewards["properties"]["negative_fraction"]["description"] == "with a reward below 0 (share of sequences)"
    assert "changed_fraction" in gaps["additionalProperties"]["properties"]


def test_of_a_kind_that_only_declares_rows_its_gap_and_its_method_row_are_checked(answers: dict[str, Any]) -> None:
    assert answers["outside"] == {
        "outside/mismatch 50": "passes",
        "outside/mismatch 51": "outside/mismatch/tokens: is more than gaps/mismatch/tokens",
        "outside/mismatch 0": "outside/mismatch/tokens: must not be 0",
        "outside/total 0": "outside/total: is of a gap without tokens",
        "outside/off_band/mismatch 50": "passes",
        "outside/off_band/total 0": "outside/off_band/total: is not of its row's gap",
        "outside/shoes/mismatch 50": "outside/shoes/mismatch: is of no method of this summary",
    }


def test_a_rule_on_it_is_judged(answers: dict[str, Any]) -> None:
    [rule] = [rule for rule in answers["rules"] if rule["alert"] == "TokensChanged"]
    assert (rule["state"], rule["value"]) == ("active", answers["gap"]["changed_fraction"])


def test_a_sum_that_is_one_row_is_kept_and_absent_from_a_merge_with_an_older_summary(answers: dict[str, Any]) -> None:
    assert answers["sums"] == {"new": 2, "twice": 4, "with an older one": None}
