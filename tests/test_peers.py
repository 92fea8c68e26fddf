"""What docs/methods.md tells users of other frameworks holds: figures, presets, rows and numbers that it names."""

import json
import math
import re
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import METHODS, ON_REQUEST, PRESETS, parse_row

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "methods.md").read_text()
CASES = ROOT / "tests" / "conformance" / "vectors" / "expected"
PEERS = ("verl", "TRL", "prime-rl", "slime", "NeMo-RL", "SkyRL", "OpenRLHF", "AReaL", "ROLL")
#: Those of which a correction alone is ours.
OF_AN_OPTION = ("ms-swift", "open-instruct")
OURS = re.compile(
    r"`-?((?:gaps|methods|breakdowns|versions|policy_lag|attribution|signature)[.\w]*"
    r"|sequence_length_max|longest_fraction|\w+_mean)`"
)


def section(heading: str) -> str:
    """The text under a heading, up to the next one of its level or above."""
    level = heading.split(" ")[0]
    body = PAGE.split(f"\n{heading}\n")[1]
    return re.split(rf"\n#{{1,{len(level)}}} ", body)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables in a text, without heads."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("| -")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return cells[1:]


@cache
def step() -> dict[str, Any]:
    """A step's answer to a batch with everything that the tables speak of."""
    source = np.random.default_rng(7)
    lengths = source.integers(1, 60, 40).astype(np.int64)
    tokens = int(lengths.sum())
    mu = -source.exponential(1.0, tokens).astype(np.float32)
    old = mu + source.normal(0, 0.05, tokens).astype(np.float32)
    columns: dict[str, Any] = {
        "sampling_logprobs": mu,
        "old_logprobs": old,
        "logprobs": old + source.normal(0, 0.3, tokens).astype(np.float32),
        "policy_versions": source.integers(3, 8, tokens),
        "turns": source.integers(0, 3, tokens),
        "entropy": source.random(tokens).astype(np.float32),
    }
    whole = {name: source.normal(0, 1, 40).astype(np.float32) for name in ("advantages", "rewards")}
    batch = RaggedBatch.from_positions(lengths, columns, whole)
    return Measurer("cpu").measure(batch, PRESETS, Origin(8, 0, {"engine": "vllm"})).step_figures()


def exists(path: str) -> bool:
    """Whether a step's answer has a figure at the path."""
    node: Any = step()
    for key in path.split("."):
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


@pytest.mark.parametrize("peer", PEERS)
def test_every_figure_of_ours_beside_a_peers_metric_exists(peer: str) -> None:
    table = rows(section(f"### {peer}"))
    assert len(table) >= 5
    for theirs, ours, same in table:
        named = OURS.findall(f"{ours} {same}")
        assert theirs and same, f"{peer} {theirs}: a cell is empty"
        assert OURS.search(ours) or ours == "-", f"{peer} {theirs}: no figure of ours in {ours!r}"
        missing = [path for path in named if not exists(path)]
        assert not missing, f"{peer} {theirs}: no step answers {missing}"


@pytest.mark.parametrize("peer", PEERS)
def test_no_metric_of_a_peer_is_listed_twice(peer: str) -> None:
    names = [row[0] for row in rows(section(f"### {peer}"))]
    assert len(names) == len(set(names))


def vectors() -> set[tuple[str, str, str]]:
    """(peer, its name, our field) of every figure of a gap that a peer's function gave to the conformance vectors."""
    found = set()
    for file in CASES.glob("*.json"):
        for check in json.loads(file.read_text())["checks"]:
            if check["path"].startswith("gaps."):
                for source in check.get("provenance", "").split("; "):
                    peer = next((p for p in PEERS if source.startswith(f"{p.lower()} ")), None)
                    name = re.sub(r"^-|^log ", "", source.rsplit(": ", 1)[-1].split(",")[0].split(" x ")[0].strip())
                    if peer:
                        found.add((peer, name, check["path"].split(".", 2)[2]))
    return found


def test_a_peers_figure_in_the_vectors_stands_beside_the_field_that_it_equals() -> None:
    tables = {peer: rows(section(f"### {peer}")) for peer in PEERS}
    assert len(vectors()) > 50
    for peer, name, field in sorted(vectors()):
        fields = {
            path.split(".", 2)[2]
            for theirs, *ours in tables[peer]
            if any(
                f"/{n}".endswith((f"/{name}", f"/{name}@sum", f"/{name}/avg")) for n in re.findall(r"`(.*?)`", theirs)
            )
            for path in OURS.findall(" ".join(ours))
            if path.startswith("gaps.")
        }
        assert field in fields, f"{peer} {name} is {field}, the table says {fields}"


def parsed(row: str) -> dict[str, Any]:
    """`mask level=token upper=3` as a row to post."""
    method, *parameters = row.split(" ")
    pairs = [parameter.split("=") for parameter in parameters]
    return {"method": method, **{key: float(v) if re.match(r"-?[\d.]+$", v) else v for key, v in pairs}}


def test_every_option_of_a_peer_has_a_preset_or_a_row_that_parses() -> None:
    presets = {row.name for row in (*PRESETS, *ON_REQUEST)}
    table = rows(section("## Your framework's option, our row"))
    assert {row[0].split(" ")[0] for row in table} == {*PEERS, *OF_AN_OPTION}
    for framework, option, row, _ in table:
        text = row.strip("`")
        if text not in presets:
            assert " " in text, f"{framework} {option}: there is no preset {text!r}"
            parse_row(parsed(text))


def test_rows_that_differ_from_a_preset_of_their_own_are_not_that_preset() -> None:
    """A row that equals a preset should be named by it, so that a user finds its figures in every answer."""
    known = {
        (row.method.name, row.gap, row.level, str(sorted(row.parameters.items()))): row.name
        for row in (*PRESETS, *ON_REQUEST)
    }
    for framework, option, row, _ in rows(section("## Your framework's option, our row")):
        if " " in row:
            made = parse_row(parsed(row.strip("`")))
            key = (made.method.name, made.gap, made.level, str(sorted(made.parameters.items())))
            assert key not in known, f"{framework} {option}: {row} is the preset {known[key]}"


def disagreements() -> list[tuple[str, str, str]]:
    text = " ".join(section("## Known disagreements, and where we stand").split())
    return re.findall(r"\(`(\w+)`: [^();]+; ours `([\w.\[\]]+)` ([\d.e+-]+)\)", text)


@pytest.mark.parametrize("disagreement", disagreements(), ids=lambda found: f"{found[0]}-{found[1]}")
def test_our_number_in_a_disagreement_is_one_of_the_conformance_vectors(disagreement: tuple[str, str, str]) -> None:
    case, path, number = disagreement
    checks = json.loads((CASES / f"{case}.json").read_text())["checks"]
    values = [check["expected"] for check in checks if check["path"] == path]
    digits = max(1, len(number.split("e")[0].replace(".", "").lstrip("0")))
    assert values and all(float(f"{value:.{digits}g}") == float(number) for value in values)


def test_most_disagreements_have_a_number() -> None:
    assert len(disagreements()) >= 10


def outside(mean: float, variance: float, lower: float | None, upper: float | None) -> float:
    """The share of a normal log-ratio outside the ratio bounds [lower, upper]."""
    law = NormalDist(mean, math.sqrt(variance))
    below = law.cdf(math.log(lower)) if lower else 0.0
    return below + (1 - law.cdf(math.log(upper)) if upper else 0.0)


def drop_rate(name: str, k3: float, tokens: int) -> float:
    """Share that a preset drops of sequences of T tokens whose d is small independent noise."""
    row = next(row for row in PRESETS if row.name == name)
    found = row.parameters
    mean, variance = (-k3 * tokens, 2 * k3 * tokens) if row.level == "sequence" else (-k3, 2 * k3 / tokens)
    if row.method.name == "opsm":
        return outside(mean, variance, math.exp(-found["delta"]), None)
    if row.method.name == "ppo_clip":
        return outside(mean, variance, 1 - found["lower"], 1 + found["upper"]) / 2
    return outside(mean, variance, found["lower"], found["upper"])


def test_the_drop_rates_of_constant_thresholds_are_what_their_formula_gives() -> None:
    text = section("## What a constant threshold hides")
    head = next(line for line in text.splitlines() if line.startswith("| preset"))
    columns = [(float(k3), int(t)) for k3, t in re.findall(r"K3 ([\d.e-]+), T (\d+)", head)]
    table = rows(text)
    assert len(table) >= 8
    for name, *percents in table:
        expected = [round(100 * drop_rate(name.strip("`"), *column)) for column in columns]
        assert [int(p) for p in percents] == expected, name
    assert round(100 * outside(-1e-3, 2e-3 / 2000, 0.99, 1.001)) == 2


def test_a_formula_is_given_for_every_field_of_a_gap() -> None:
    gap = step()["gaps"]["total"]
    named = {name for cells in rows(section("## Figures of a gap")) for name in re.findall(r"`(\w+)`", cells[0])}
    assert set(gap) - {"sequence"} | set(gap["sequence"]) <= named


def test_every_field_of_a_step_is_described() -> None:
    pages = PAGE + (ROOT / "docs" / "protocol.md").read_text()
    missing = [name for name in step() if f"`{name}`" not in pages and f'"{name}"' not in pages]
    assert not missing
    assert {"anchor_disagreement", "length_bias"} <= set(step()["methods"]["opsm"])
    assert "methods.*.anchor_disagreement" in PAGE and "methods.*.length_bias" in PAGE


def test_every_method_has_a_rule_and_every_preset_a_row_on_the_page() -> None:
    assert all(f"| `{name}` |" in section("## Rules") for name in METHODS)
    assert all(f"| `{row.name}` |" in section("## Presets") for row in PRESETS)


def test_links_within_the_page_lead_to_headings() -> None:
    slugs = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", PAGE, re.M)}
    for target in re.findall(r"\]\(#([\w-]+)\)", PAGE):
        assert target in slugs, f"no heading for #{target}"
