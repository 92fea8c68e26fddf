"""The pages in docs/ say what the code does: generated parts are current, names and fields are complete, links lead."""

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from offpolicy_monitor import core
from offpolicy_monitor.methods import METHODS, Method
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings

from scripts.docs.pages import pages

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGE = Path(core.__file__).parent.parent
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))])


def test_generated_pages_are_what_make_docs_writes() -> None:
    for page, content in pages().items():
        assert page.read_text() == content, f"{page.name} is not current: run make docs"


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_each_method_says_what_it_does_and_where_it_comes_from(method: Method) -> None:
    assert len(method.text) > 10 and len(method.papers) > 3
    assert method.summary and "`" not in method.summary


def test_methods_page_names_functions_that_exist() -> None:
    for path, function in re.findall(r"`((?:core|summary)/\w+\.py)` `(\w+)`", (DOCS / "methods.md").read_text()):
        source = (Path(core.__file__).parent.parent / path).read_text()
        assert f"def {function}(" in source, f"{path} has no {function}"


def test_protocol_page_lists_every_route() -> None:
    page = (DOCS / "protocol.md").read_text()
    for path, operations in create_app(Settings(database_url="sqlite:///unused.db")).openapi()["paths"].items():
        assert path.removeprefix("/v1/runs/{run}") in page or path in page, (
            f"{list(operations)} {path} is not described"
        )


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, f"{Settings.variable(name)} has no description"


def test_architecture_page_gives_every_dependency_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    entries = project["dependencies"] + extras["server"] + extras["postgres"] + extras["ray"]
    wanted = {re.split(r"[\[<>=]", entry)[0] for entry in entries}
    table = (DOCS / "architecture.md").read_text().split("## Dependencies")[1]
    packages = "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line)
    named = set(re.findall(r"[a-z][a-z0-9-]+", packages))
    assert wanted <= named, f"without a reason: {wanted - named}"


def test_architecture_page_names_every_room() -> None:
    page = (DOCS / "architecture.md").read_text()
    rooms = [f"{p.name}/" if p.is_dir() else p.name for p in PACKAGE.iterdir() if not p.name.startswith(("_", "."))]
    missing = [room for room in rooms if f"`{room}`" not in page and room != "py.typed"]
    assert not missing


def test_rates_are_per_token_and_per_second() -> None:
    unit = "ns|ms|bytes|[KM]i?B|nats|tokens|shards|posts|batches|requests"
    rate = re.compile(rf"\b({unit}) an? (token|step|second|minute|hour|shard|request)\b(?! time)")
    assert not found_in_texts(rate)


def test_of_what_there_is_one_for_each_it_is_said_that_it_is_one_per() -> None:
    thing = r"row|column|object|table|list|folder|challenge|lane|entry|dict|batch|shard|scale|measurer"
    each = (
        r"step|row|span|sequence|token|process|setting|scrape|line|measure|quantity|figure|start|turn|stage|target|"
        r"prompt|sample|alert|channel|processor|worker|rank|gap|method|label|file|device|minute"
    )
    counted = rf"(?:\b(?:(?:an?|one)\s(?:{thing})|one|once|rows|of text)|\])"
    kind = "training|gradient|active|output|data-parallel"
    one = re.compile(rf"{counted}\s+an?\s+(?:(?:{kind}) )?(?:{each})\b(?! is\b)", re.I)
    assert not found_in_texts(one)


def found_in_texts(said: re.Pattern[str]) -> list[tuple[str, str]]:
    """Where a page, the package or what makes pages says so."""
    texts = [*PAGES, *PACKAGE.rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
    return [(path.name, found[0]) for path in texts for found in said.finditer(path.read_text())]


def test_docstrings_and_comments_name_modules_that_there_are() -> None:
    rooms = [path.parent for path in PACKAGE.glob("*/**/__init__.py")]
    names = "|".join(sorted({room.name for room in rooms}))
    named = re.compile(rf"(?<![\w./`'\"{{])(?!http\.client\b)(?:{names})(?:\.(?!py\b)[a-z_]\w*)+")
    texts = ((path.name, text) for path in PACKAGE.rglob("*.py") for text in prose(path))
    said = [(name, found[0].split(".")) for name, text in texts for found in named.finditer(text)]
    assert len(said) > 100
    for name, module in said:
        within = [room.parent for room in rooms if room.name == module[0]]
        assert any(is_there(folder, module) for folder in within), f"{name} names {'.'.join(module)}"


def prose(path: Path) -> Iterator[str]:
    """The docstrings and comments of a source."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT or token.string.startswith('"""'):
            yield token.string.strip('"')


def is_there(folder: Path, names: list[str]) -> bool:
    """Whether names lead from a folder to a module, in which anything may be, or to what the folder has by itself."""
    name, *rest = names
    if (folder / f"{name}.py").exists():
        return True
    if (folder / name).is_dir():
        return not rest or is_there(folder / name, rest)
    return re.search(rf"\b{name}\b", (folder / "__init__.py").read_text()) is not None


def test_modules_are_named_by_what_they_are() -> None:
    names = {path.stem for path in PACKAGE.rglob("*.py") if path.stem.endswith("ing")}
    assert names == {"encoding", "ranking", "routing"}  # nouns: of HTTP, of a signature, of experts


def test_the_glossary_says_each_word_once() -> None:
    lines = [line for line in (DOCS / "glossary.md").read_text().splitlines() if line.startswith("| ")]
    words = [word.strip() for line in lines for word in line.split("|")[1].split(",") if word.strip() != "word"]
    assert len(words) == len(set(words))
    asked = {"rule", "method", "row", "preset", "band", "figure", "table", "shard", "step", "attempt", "verdict"}
    assert asked <= set(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
