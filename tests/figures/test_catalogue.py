"""The catalogue has every figure that is answered and no other; whoever names a figure means one of its rows."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor import pages, verdict
from offpolicy_monitor.alerts import RULES, paths_of
from offpolicy_monitor.answers.run import ROWS as SHOWN
from offpolicy_monitor.diagnosis import Evidence, Limits, collect, diagnose
from offpolicy_monitor.diagnosis.hypotheses import HYPOTHESES
from offpolicy_monitor.families import BY_NAME, RUN_GAUGES
from offpolicy_monitor.figures import FIGURES, HEADLINE, from_headline, headline, is_headline, is_known, walk
from offpolicy_monitor.figures.path import expression, matches, names, tree
from offpolicy_monitor.figures.rows.batch import BATCH
from offpolicy_monitor.figures.rows.gaps import OF_SEQUENCES, OF_TOKENS
from offpolicy_monitor.figures.rows.methods import METHOD
from offpolicy_monitor.store.rows.step_columns import READERS
from offpolicy_monitor.summary.figure import Figure

from tests.figures.everything import CORRECTION, ROWS, post, summary
from tests.fixtures.application import JSON, Client, json_bytes, started

#: What a step's answer says beside its figures.
FACTS = {"step", "minibatch", "attempt", "received_shards", "shards", "policy_version", "minibatches"}
#: Facts of a run that families show though no step answers them.
RUN_FACTS = {"step", "policy_version", "last_batch", "coverage", "step_seconds", "open_since", "finished"}
#: Evidence that is no figure of a step: of several steps, of few sequences, of the run's rules.
OF_NO_STEP = ("steps.", "few.", "limits.")
STATIC = Path(pages.__file__).parent / "static"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Client]:
    """A service with run `all`, whose steps have everything, and run `bare`, which has two log-probs."""
    with started(tmp_path_factory.mktemp("figures"), migrated_file) as client:
        post(client, "all", 0)
        changes = json.dumps({"methods": ROWS, "correction": CORRECTION})
        assert client.request("PATCH", "/v1/runs/all", content=changes, headers=JSON).status_code == 200
        post(client, "all", 1)
        bare = json_bytes(step=1)
        assert client.post("/v1/runs/bare/batches", content=bare, headers=JSON).status_code == 200
        yield client


@pytest.fixture(scope="module")
def answered(loaded: Client) -> dict[str, float]:
    """Every number of the answer to a step that has everything, by its path."""
    step = loaded.get("/v1/runs/all/steps/1").json()
    return dict(walk({name: value for name, value in step.items() if name not in FACTS}))


@cache
def figure_at(path: str) -> Figure | None:
    """The row of the figure at a path; None where no step has one there."""
    return next((figure for pattern, figure in patterns() if pattern.fullmatch(path)), None)


@cache
def patterns() -> list[tuple[re.Pattern[str], Figure]]:
    """What the paths of each row match."""
    return [(re.compile(expression(figure.path)), figure) for figure in FIGURES]


def test_every_figure_that_is_answered_is_a_row_of_the_catalogue(answered: dict[str, float]) -> None:
    assert len(answered) > 1000
    assert [path for path in answered if not is_known(path)] == []


def test_every_row_of_the_catalogue_is_answered_by_a_step_that_has_everything(answered: dict[str, float]) -> None:
    found = {figure.path for path in answered if (figure := figure_at(path)) is not None}
    of_correction = {figure.path for figure in FIGURES if figure.path.startswith("correction.")}
    absent = {figure.path for figure in FIGURES} - found - of_correction
    # Rounded to no grid, there is no step to tell; the preset's threshold alone is not among the rows.
    assert absent == {"signature.grid.step"}


def test_headline_figures_nest_as_the_figures_that_they_are_part_of(loaded: Client) -> None:
    step = loaded.get("/v1/runs/all/steps/1").json()
    expected = headline(step)
    found = dict(walk(from_headline({path: float(value) for path, value in headline(step, CORRECTION).items()})))
    assert found == expected and len(found) > 80
    assert {path: type(value) for path, value in found.items()} == {path: type(v) for path, v in expected.items()}


def test_a_whole_number_that_is_kept_narrow_comes_back_as_one_whichever_figure_it_is(loaded: Client) -> None:
    step = loaded.get("/v1/runs/all/steps/1").json()
    for figure in FIGURES:
        if "{index}" in figure.path or "{lag}" in figure.path or figure.path.startswith("correction."):
            continue  # of a list, or of any number of lags: nothing of these is kept narrow
        for path, value in matches(step, tree([figure.path])).items():
            kept = dict(walk(from_headline({path: float(value)})))
            assert kept == {path: value} and type(kept[path]) is type(value), path


def test_a_figure_is_a_whole_number_where_its_unit_says_so(answered: dict[str, float]) -> None:
    found = [(path, figure) for path in answered if (figure := figure_at(path)) is not None]
    assert [path for path, figure in found if isinstance(answered[path], int) != figure.is_whole] == []


def test_a_figure_of_the_correction_says_all_that_its_row_says_but_for_where_it_is_shown() -> None:
    by_path = {figure.path: figure for figure in FIGURES}
    for path, figure in by_path.items():
        if path.startswith("correction."):
            row = by_path[path.replace("correction", "methods.{method}", 1)]
            assert figure == replace(row, path=path, headline=figure.headline, gauge=None)


def test_every_figure_that_is_answered_can_be_plotted(loaded: Client, answered: dict[str, float]) -> None:
    paths = {figure.path: path for path in answered if (figure := figure_at(path)) is not None}
    for path in [*paths.values(), "breakdowns.label:engine.host.1.gaps.total.k3"]:
        series = loaded.get("/v1/runs/all/series", params={"field": path})
        assert series.status_code == 200, path
        assert series.json()["value"][-1] == pytest.approx(answered[path], rel=1e-12), path


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row.path)
def test_a_figure_that_a_run_lacks_is_plotted_as_null(loaded: Client, row: Any) -> None:
    path = row.path.format(
        gap="total", quantile="0.5", method="none", index=0, lag=3, dimension="position", bucket="first"
    )
    series = loaded.get("/v1/runs/bare/series", params={"field": path})
    assert series.status_code == 200
    assert len(series.json()["value"]) == 1


def test_figures_of_the_correction_in_use_are_plotted_whatever_its_name(
    loaded: Client, answered: dict[str, float]
) -> None:
    for name in ("masked_token_fraction", "k3_kept"):
        series = loaded.get("/v1/runs/all/series", params={"field": f"correction.{name}"}).json()
        assert series["value"][-1] == answered[f"methods.{CORRECTION}.{name}"]


def test_no_figure_has_two_rows() -> None:
    paths = [figure.path for figure in FIGURES]
    assert len(set(paths)) == len(paths)


def test_every_figure_says_what_it_is() -> None:
    assert [figure.path for figure in FIGURES if not figure.meaning] == []


@pytest.mark.parametrize("rows", [BATCH, OF_TOKENS, OF_SEQUENCES, METHOD], ids=["step", "gap", "sequence", "method"])
def test_no_two_figures_of_a_step_a_gap_or_a_method_say_the_same(rows: tuple[Figure, ...]) -> None:
    assert [meaning for meaning, count in Counter(figure.meaning for figure in rows).items() if count > 1] == []
    assert [figure.path for figure in rows if "the same" in figure.meaning + figure.source] == []


@pytest.mark.parametrize(
    ("end", "word"),
    [("_mean", "mean "), ("_std", "standard deviation "), ("_min", "the smallest "), ("_max", "the largest ")],
)
def test_a_figure_of_a_gap_says_which_of_a_quantity_it_is(end: str, word: str) -> None:
    by_word = {figure.path for figure in (*OF_TOKENS, *OF_SEQUENCES) if figure.meaning.startswith(word)}
    by_name = {figure.path for figure in (*OF_TOKENS, *OF_SEQUENCES) if figure.name.endswith(end)}
    assert len(by_name) > 2 and by_name <= by_word


def test_what_is_kept_narrow_is_some_hundred_figures_of_a_run_that_sends_everything(answered: dict[str, float]) -> None:
    narrow = [path for path in answered if is_headline(path) and not path.startswith("methods.")]
    assert 60 < len(narrow) < 115
    assert len(set(HEADLINE)) == len(HEADLINE)


@pytest.mark.parametrize("family", RUN_GAUGES, ids=lambda family: family.name)
def test_a_gauge_shows_figures_that_say_so(family: Any) -> None:
    for source in family.sources:
        path = source.path.format(
            **{name: {"gap": "total", "quantile": "0.5"}.get(name, name) for name in names(source.path)}
        )
        figure = figure_at(path)
        if figure is None:
            assert source.path in RUN_FACTS or source.path.startswith("alerts.")
        else:
            assert figure.gauge is not None and figure.gauge.family == family.name


def test_every_gauge_of_a_figure_is_a_family() -> None:
    shown = {figure.gauge.family for figure in FIGURES if figure.gauge is not None}
    assert {name for name in shown if name not in BY_NAME} == set()


def test_every_path_of_a_rule_and_of_a_hypothesis_is_a_figure() -> None:
    assert [path for path in paths_of(RULES) if path != "policy_version" and not is_known(path)] == []
    shown = {path for hypothesis in HYPOTHESES for path in hypothesis.paths if not path.startswith(OF_NO_STEP)}
    assert [path for path in sorted(shown) if not is_known(path) and not path.endswith((".name", ".column"))] == []


def script_paths(script: str, name: str, column: str) -> list[str]:
    """The paths in a list of a page's script, where `column` finds them; those of any gap as of the total."""
    [listed] = re.findall(rf"^const {name} = \[\n(.*?)^\];", (STATIC / script).read_text(), re.S | re.M)
    return [path.replace("{gap}", "total") for path in re.findall(column, listed)]


#: Lists of paths that others than rules and hypotheses keep: what a run's page, terminal and sentence look at.
LISTS: dict[str, list[str]] = {
    "run page": script_paths("pages/run/fields.js", "FIXED", r'"([^"]+)"'),
    "step page": script_paths("pages/step/figures.js", "FIGURES", r'\["([^"]+)"'),
    "compare page": script_paths("pages/compare.js", "PANELS", r'field: "([^"]+)"'),
    "show": [row.field for row in SHOWN],
    "verdict": list(verdict.PATHS),
}


@pytest.mark.parametrize("paths", LISTS.values(), ids=LISTS.keys())
def test_every_path_that_a_page_or_a_sentence_shows_is_a_figure(paths: list[str]) -> None:
    assert len(paths) > 6
    assert [path for path in paths if not is_known(path) and path not in READERS] == []


def test_every_path_between_quotes_in_a_script_is_a_figure() -> None:
    fields = {figure.path.partition(".")[0] for figure in FIGURES if "." in figure.path}
    quoted = re.compile(rf'"((?:{"|".join(sorted(fields))})\.[\w.{{}}]+)"')
    scripts = [script.read_text() for script in STATIC.rglob("*.js") if "vendor" not in script.parts]
    found = {path.replace("{gap}", "total") for script in scripts for path in quoted.findall(script)}
    assert len(found) > 25
    assert [path for path in sorted(found) if not is_known(path)] == []


class Asked(Evidence):
    """Evidence that remembers what was asked of it."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence, evidence.names)
        self.paths: set[str] = set()

    def get(self, path: str, default: Any = None) -> Any:
        self.paths.add(path)
        return super().get(path, default)

    def __getitem__(self, path: str) -> float:
        self.paths.add(path)
        return super().__getitem__(path)


def test_every_figure_that_a_diagnosis_asks_for_is_one() -> None:
    asked = Asked(collect([summary(step) for step in range(7)], limits=Limits(1e-2, 1e-2)))
    assert diagnose(asked)
    figures = {path for path in asked.paths if not path.startswith(OF_NO_STEP)}
    assert [path for path in sorted(figures) if not is_known(path)] == []
    assert len(figures) > 25 and figures - asked.keys() == set()
