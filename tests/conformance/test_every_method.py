"""Every method on every gap at every level with every option is evaluated, and stored, as the oracle says.

The rows are made from the catalogue, so that a new method without thresholds in CASES fails. The batch has all there
can be: an empty sequence, one outside the mask, holes, a NaN, advantages of every sign.
"""

import json
import math
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from offpolicy_monitor.methods import GAPS, METHODS
from offpolicy_monitor.methods.model import Choice

from tests.agreement import assert_method_agrees, largest_log_ratio
from tests.fixtures.application import JSON, Client, started
from tests.reference import COLUMNS, Sequence
from tests.reference_methods import CASES, SIGNED, Outcome, outcome
from tests.strategies import random_sequences

Row = dict[str, Any]
ROWS_PER_PATCH: Final = 300  # what one small body holds
K_BOUNDS: Final = ({"upper": 1e-3}, {"lower": 1e-4, "upper": 2e-3}, {"lower": -0.02, "upper": 0.02})


def options(name: str, level: str) -> Iterator[Row]:
    """Every combination of a method's options that means something at this level."""
    choices = {key: p.options for key, p in METHODS[name].parameters.items() if isinstance(p, Choice)}
    for values in product(*choices.values()):
        chosen = dict(zip(choices, values, strict=True))
        k_statistic = chosen.get("statistic", "ratio") != "ratio"
        reducible = k_statistic and level != "token"
        if "reduce" in chosen and not reducible:
            if chosen.pop("reduce") != "mean":
                continue
        elif level == "geometric" and chosen.get("reduce", "mean") != "mean":
            continue
        yield chosen


def every_row() -> list[Row]:
    rows: list[Row] = []
    for name, method in METHODS.items():
        for gap, level in product(GAPS, method.levels):
            for chosen in options(name, level):
                k_statistic = chosen.get("statistic", "ratio") != "ratio"
                for thresholds in K_BOUNDS if k_statistic else CASES[name].thresholds:
                    more = {"kl_tau": 0.5} if chosen.get("statistic") == "k2" else {}
                    row = {"method": name, "gap": gap, "level": level, **chosen, **thresholds, **more}
                    rows.append({"name": f"row{len(rows)}", **row})
    return rows


def batch(advantages: str) -> list[Sequence]:
    """Two thirds of the sequences drift; `advantages` are `none`, `sequence` or `token`."""
    sent = random_sequences(11, [40, 1, 0, 25, 3, 9], 0.05)
    sent += random_sequences(12, [30, 6], 0.01, drift=0.002)
    sent[3].mask[4] = sent[3].mask[24] = sent[4].mask[0] = 0
    sent[1].mask[0] = 0
    sent[0].logprobs["old_logprobs"][7] = math.nan
    signs = [-1.0, 1.0, 0.0, -0.5, 2.0, 0.0, -2.0, 1.0]
    if advantages == "none":
        return [Sequence(s.logprobs, s.mask) for s in sent]
    if advantages == "sequence":
        return [Sequence(s.logprobs, s.mask, a) for s, a in zip(sent, signs, strict=True)]
    return [Sequence(s.logprobs, s.mask, (signs * 5)[i : i + len(s.mask)]) for i, s in enumerate(sent)]


def body(sent: list[Sequence], names: tuple[str, ...] = COLUMNS, **envelope: Any) -> bytes:
    columns = {name: [None if math.isnan(x) else x for s in sent for x in s.logprobs[name]] for name in names}
    values: dict[str, Any] = {
        **columns,
        "lengths": [len(s.mask) for s in sent],
        "mask": [x for s in sent for x in s.mask],
    }
    if isinstance(sent[0].advantage, list):
        values["advantages"] = [x for s in sent if isinstance(s.advantage, list) for x in s.advantage]
    elif sent[0].advantage is not None:
        values["advantages"] = [s.advantage for s in sent]
    return json.dumps({**values, **envelope}).encode()


ROWS: Final = every_row()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Client]:
    """An application in which a run may have every row at once."""
    with started(tmp_path_factory.mktemp("rows"), migrated_file, max_run_methods=len(ROWS)) as running:
        yield running


def ingested(client: Client, run: str, sent: list[Sequence], names: tuple[str, ...] = COLUMNS) -> dict[str, Any]:
    """What the batches of a run answer of all rows, chosen part by part; their stored steps say the same."""
    client.post(f"/v1/runs/{run}/batches", content=body(sent, step=0), headers=JSON)
    found: dict[str, Any] = {}
    for step, start in enumerate(range(0, len(ROWS), ROWS_PER_PATCH), start=1):
        chosen = json.dumps({"methods": ROWS[start : start + ROWS_PER_PATCH]}).encode()
        response = client.request("PATCH", f"/v1/runs/{run}", content=chosen, headers=JSON)
        assert response.status_code == 200, response.text
        response = client.post(f"/v1/runs/{run}/batches", content=body(sent, names, step=step), headers=JSON)
        assert response.status_code == 200, response.text
        answered = response.json()["methods"]
        assert client.get(f"/v1/runs/{run}/steps/{step}").json()["methods"] == answered
        found |= answered
    return found


def evaluated(client: Client, sent: list[Sequence], names: tuple[str, ...] = COLUMNS) -> dict[str, Any]:
    response = client.post("/v1/evaluate?detail=token", content=body(sent, names, methods=ROWS), headers=JSON)
    assert response.status_code == 200, response.text
    return {row["name"]: row for row in response.json()["methods"]}


def test_there_are_rows_of_every_method_gap_level_and_option() -> None:
    assert set(CASES) == set(METHODS)
    seen = {(row["method"], row["gap"], row["level"]) for row in ROWS}
    assert seen == {(name, gap, level) for name, m in METHODS.items() for gap in GAPS for level in m.levels}
    statistics = {(row["level"], row["statistic"], row.get("reduce")) for row in ROWS if row["method"] == "mask"}
    assert len(statistics) == 3 + 3 * (1 + 3 + 1)


@cache
def oracle(advantages: str) -> dict[str, Outcome | None]:
    """What each row does to the batch with these advantages."""
    sent = batch(advantages)
    return {row["name"]: outcome(sent, row) for row in ROWS}


@pytest.mark.parametrize("advantages", ["none", "sequence", "token"])
@pytest.mark.parametrize("path", ["evaluate", "ingest"])
def test_every_row_does_what_the_oracle_says(path: str, advantages: str, client: Client) -> None:
    sent = batch(advantages)
    found = evaluated(client, sent) if path == "evaluate" else ingested(client, advantages, sent)
    expected, largest = oracle(advantages), cache(partial(largest_log_ratio, sent))
    assert list(found) == [name for name, wanted in expected.items() if wanted is not None]
    compared = set()
    for row in ROWS:
        got, wanted = found.get(row["name"]), expected[row["name"]]
        if got is None or wanted is None:
            continue
        assert {"name": row["name"], **got}.items() >= row.items()
        assert_method_agrees(got, wanted, largest(row["gap"], row["level"] == "sequence"))
        if not wanted.doubtful:
            compared.add((row["method"], row["gap"], row["level"]))
    sent_methods = {name for name in METHODS if advantages != "none" or name not in SIGNED}
    assert compared == {(n, gap, level) for n in sent_methods for gap in GAPS for level in METHODS[n].levels}


@pytest.mark.parametrize(
    ("names", "gap"),
    [(COLUMNS[:2], "mismatch"), (COLUMNS[1:], "staleness"), ((COLUMNS[0], COLUMNS[2]), "total")],
)
def test_rows_of_a_gap_that_was_not_sent_are_absent(names: tuple[str, ...], gap: str, client: Client) -> None:
    sent = batch("sequence")
    wanted = [row["name"] for row in ROWS if row["gap"] == gap]
    assert list(evaluated(client, sent, names)) == wanted
    assert list(ingested(client, gap, sent, names)) == wanted
