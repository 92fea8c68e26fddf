"""The pages about frameworks: their lines are Python, what they import of ours exists, the table has a row for each."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from scripts.docs.frameworks import LINES, lines

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "frameworks"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")


def blocks(page: Path) -> list[str]:
    """The lines that a page tells to add."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_imports_of_ours_exists(page: Path) -> None:
    imports = [
        node for block in blocks(page) for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)
    ]
    ours = [node for node in imports if node.module and node.module.startswith("offpolicy_monitor")]
    assert ours or "offpolicy_monitor.client.adapters." in page.read_text()
    for node in ours:
        module = importlib.import_module(str(node.module))
        assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_at_its_top_what_the_tables_take_from_it_all_of_it_in_one_order(page: Path) -> None:
    assert list(lines(page.read_text())) == list(LINES)
    assert page.read_text().count("* **") == len(lines(page.read_text()))
