"""The catalogue is what the design's page on methods says, and a row that is wrong is refused by its field."""

import ast
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor import methods
from offpolicy_monitor.alerts import CORRECTIONS
from offpolicy_monitor.core.scores import Score, sequence_scores, token_scores
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.methods import (
    COMPARED,
    GAPS,
    METHODS,
    ON_REQUEST,
    PRESETS,
    parse_rows,
    parse_selection,
    restored,
)
from offpolicy_monitor.methods.curve import SEQUENCE_SCORES, TOKEN_SCORES, Budget, ratio_bounds
from offpolicy_monitor.methods.rule import Band, Clip, Cut, Drop, rule_of, weight_of
from offpolicy_monitor.vocabulary import STANDARD_METHOD
from offpolicy_monitor.wire import arrays

from tests.core.gaps import gap_of
from tests.reference_methods import CASES

#: name -> (method, gap, level, parameters that were set)
EXPECTED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "tis_token": ("truncate", "mismatch", "token", {"upper": 2.0}),
    "tis_sequence": ("truncate", "mismatch", "sequence", {"upper": 2.0}),
    "mis_token": ("mask", "mismatch", "token", {"lower": 0.5, "upper": 2.0, "statistic": "ratio"}),
    "mis_sequence": ("mask", "mismatch", "sequence", {"lower": 0.5, "upper": 2.0, "statistic": "ratio"}),
    "mis_sequence_trl": ("mask", "mismatch", "sequence", {"upper": 3.0, "statistic": "ratio"}),
    "geometric_mask": ("mask", "mismatch", "geometric", {"lower": 0.999, "upper": 1.001, "statistic": "ratio"}),
    "geometric_mask_nemo": ("mask", "mismatch", "geometric", {"lower": 0.999, "upper": 1.002, "statistic": "ratio"}),
    "geometric_mask_wide": ("mask", "mismatch", "geometric", {"lower": 0.99, "upper": 1.01, "statistic": "ratio"}),
    "geometric_mask_total": ("mask", "total", "geometric", {"lower": 0.99, "upper": 1.01, "statistic": "ratio"}),
    "k3_sequence": ("mask", "mismatch", "geometric", {"upper": 0.01, "statistic": "k3", "reduce": "mean"}),
    "veto": ("veto", "mismatch", "sequence", {"lower": 1e-4}),
    "opsm": ("opsm", "total", "geometric", {"delta": 0.01}),
    "opsm_tight": ("opsm", "total", "geometric", {"delta": 1e-4}),
    "opsm_loose": ("opsm", "total", "geometric", {"delta": 0.5}),
    "gspo": ("ppo_clip", "staleness", "geometric", {"lower": 3e-4, "upper": 4e-4}),
    "gspo_total": ("ppo_clip", "total", "geometric", {"lower": 3e-4, "upper": 4e-4}),
    "grpo": ("ppo_clip", "staleness", "token", {"lower": 0.2, "upper": 0.27}),
    "dapo": ("ppo_clip", "staleness", "token", {"lower": 0.2, "upper": 0.28}),
    "cispo": ("cispo", "staleness", "token", {"lower": 1.0, "upper": 4.0}),
    "icepop": ("mask", "mismatch", "token", {"lower": 0.5, "upper": 5.0, "statistic": "ratio"}),
    "icepop_total": ("mask", "total", "token", {"lower": 0.5, "upper": 5.0, "statistic": "ratio"}),
    "dppo_tv": ("dppo", "total", "token", {"divergence": "tv", "lower": 0.2, "upper": 0.2, "zero_advantage": "keep"}),
    "dppo_kl": ("dppo", "total", "token", {"divergence": "kl", "lower": 0.05, "upper": 0.05, "zero_advantage": "keep"}),
    "ipo": ("ipo", "total", "token", {"threshold": 0.1}),
    "ipo_kl": ("mask", "total", "token", {"lower": 0.2, "upper": 5.0, "statistic": "ratio", "kl_tau": 1e-3}),
    "m2po": ("m2po", "mismatch", "token", {"threshold": 0.04}),
    "trm": ("trm", "total", "sequence", {"max": 0.05, "mean": 0.001}),
    "kpop": ("kpop", "total", "token", {"phi": 2.0}),
    "seq_error": ("seq_error", "mismatch", "sequence", {"threshold": 2.0}),
}

#: The same of rows that run where a run asks for them.
ON_REQUEST_EXPECTED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "m2po_paper": ("m2po_paper", "total", "token", {"threshold": 0.04}),
    "vaco": ("vaco", "total", "token", {"threshold": 0.04}),
    "cppo": ("cppo", "total", "token", {"delta": 0.2, "budget": 0.02, "w_min": 0.8}),
    "cppo_dense": ("cppo", "total", "token", {"delta": 0.15, "budget": 0.02, "w_min": 0.8}),
    "cppo_fixed": ("cppo", "total", "token", {"delta": 0.15, "budget": 0.015, "budget_max": 0.015, "w_min": 0.8}),
    "seq_mis": ("seq_mis", "total", "geometric", {"lower": 0.99, "upper": 1.01}),
}
GOOD_ROW = {"method": "opsm", "delta": 0.1}


def refused_field(row: object, before: int = 0) -> str:
    with pytest.raises(Refusal) as caught:
        parse_rows([*[GOOD_ROW] * before, row])  # pyrefly: ignore[bad-argument-type]
    assert caught.value.status == 422
    (error,) = caught.value.errors
    assert error.field in caught.value.detail
    assert error.message
    return error.field


def test_the_presets_are_those_of_the_page_in_its_order() -> None:
    assert [row.name for row in PRESETS] == list(EXPECTED)
    assert [row.name for row in ON_REQUEST] == list(ON_REQUEST_EXPECTED)


@pytest.mark.parametrize("name", [*EXPECTED, *ON_REQUEST_EXPECTED])
def test_a_preset_has_the_parameters_of_the_page(name: str) -> None:
    [preset] = [row for row in (*PRESETS, *ON_REQUEST) if row.name == name]
    method, gap, level, parameters = (EXPECTED | ON_REQUEST_EXPECTED)[name]
    assert preset.spec == {"method": method, "gap": gap, "level": level, **parameters}


def test_every_method_of_the_page_is_there_with_its_default_gap() -> None:
    assert list(METHODS) == list(CASES)
    assert GAPS == ("mismatch", "staleness", "total")
    for name, (gap, (thresholds, *_)) in CASES.items():
        (row,) = parse_rows([{"method": name, **thresholds}])
        assert (row.name, row.gap) == (name, gap)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("method", CASES)
def test_any_gap_may_be_asked_for(method: str, gap: str) -> None:
    (row,) = parse_rows([{"method": method, "gap": gap, **CASES[method].thresholds[0]}])
    assert row.spec["gap"] == gap


def test_rows_keep_their_order_and_names_may_repeat() -> None:
    rows = parse_rows([{"name": "b", **GOOD_ROW}, {"name": "a", **GOOD_ROW}, {"name": "b", **GOOD_ROW}])
    assert [row.name for row in rows] == ["b", "a", "b"]
    assert parse_rows([]) == ()
    assert len(parse_rows([GOOD_ROW] * 1000)) == 1000


def test_thresholds_become_floats_and_null_is_an_absent_bound() -> None:
    (row,) = parse_rows([{"method": "mask", "lower": None, "upper": 2}])
    assert row.spec == {"method": "mask", "gap": "mismatch", "level": "token", "upper": 2.0, "statistic": "ratio"}
    assert isinstance(row.spec["upper"], float)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "method"),
        ({"method": "opsmm", "delta": 1}, "method"),
        ({"method": None, "delta": 1}, "method"),
        ({"method": ["opsm"], "delta": 1}, "method"),
        ({"method": {"a": 1}}, "method"),
        ({"method": "opsm", "delta": 1, "gap": "drift"}, "gap"),
        ({"method": "opsm", "delta": 1, "gap": None}, "gap"),
        ({"method": "opsm", "delta": 1, "gap": ["total"]}, "gap"),
        ({"method": "opsm", "delta": 1, "level": "token"}, "level"),
        ({"method": "mask", "upper": 2, "level": "seq"}, "level"),
        ({"method": "mask", "upper": 2, "level": 1}, "level"),
        ({"method": "opsm", "delta": 1, "epsilon": 0.1}, "epsilon"),
        ({"method": "opsm", "delta": 1, "upper": 0.1}, "upper"),
        ({"method": "mask", "upper": 2, "statistic": "k4"}, "statistic"),
        ({"method": "truncate", "lower": 1e101}, "lower"),
        ({"method": "dppo", "lower": 1, "upper": 1, "divergence": "js"}, "divergence"),
        ({"method": "dppo", "lower": 1, "upper": 1, "zero_advantage": "drop"}, "zero_advantage"),
        ({"method": "opsm"}, "delta"),
        ({"method": "trm", "max": 1}, "mean"),
        ({"method": "ppo_clip", "lower": 0.2}, "upper"),
        ({"method": "truncate"}, "upper"),
        ({"method": "mask", "lower": None, "upper": None}, "upper"),
        ({"method": "veto"}, "upper"),
        ({"method": "mask", "lower": 2, "upper": 1}, "lower"),
        ({"method": "truncate", "lower": 2, "upper": 1}, "lower"),
        ({"method": "seq_mis", "lower": 2, "upper": 1}, "lower"),
        ({"method": "cppo", "delta": 0.1, "budget": 0.1, "budget_max": 0.01}, "budget"),
        ({"method": "cppo", "delta": 0.1, "w_min": 1.1}, "w_min"),
        ({"name": "", **GOOD_ROW}, "name"),
        ({"name": "x" * 129, **GOOD_ROW}, "name"),
        ({"name": 7, **GOOD_ROW}, "name"),
        ({"name": None, **GOOD_ROW}, "name"),
    ],
)
def test_a_row_that_is_wrong_is_refused_by_its_field(row: dict[str, Any], field: str) -> None:
    assert refused_field(row) == f"methods[0].{field}"


def test_the_refusal_names_the_place_of_the_row() -> None:
    assert refused_field({"method": "opsm"}, before=3) == "methods[3].delta"


@pytest.mark.parametrize("row", [None, 3, "opsm", ["method", "opsm"]])
def test_a_row_that_is_no_object_is_refused(row: object) -> None:
    assert refused_field(row, before=1) == "methods[1]"


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, -0.1, True, False, "0.1", "required", "", [0.1], {"value": 0.1}, None, 10**400],
    ids=lambda value: repr(value)[:12],
)
def test_a_threshold_that_is_no_number_in_range_is_refused(value: object) -> None:
    assert refused_field({"method": "opsm", "delta": value}) == "methods[0].delta"


@pytest.mark.parametrize("method", CASES)
def test_a_required_threshold_may_not_be_null(method: str) -> None:
    required = CASES[method].thresholds[0]
    for name in required:
        with pytest.raises(Refusal):
            parse_rows([{"method": method, **required, name: None}])


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "2", -1e-9])
@pytest.mark.parametrize("key", ["lower", "upper"])
@pytest.mark.parametrize("method", ["truncate", "mask", "veto"])
def test_a_bound_on_a_ratio_that_is_no_number_from_zero_is_refused(method: str, key: str, value: object) -> None:
    assert refused_field({"method": method, key: value}) == f"methods[0].{key}"


@pytest.mark.parametrize("value", [math.nan, -0.5, "x", True])
def test_kl_tau_is_a_number_from_zero(value: object) -> None:
    assert refused_field({"method": "mask", "upper": 2, "kl_tau": value}) == "methods[0].kl_tau"


def test_bounds_on_k1_may_be_negative() -> None:
    (row,) = parse_rows([{"method": "mask", "statistic": "k1", "lower": -0.7, "upper": 0.7}])
    assert (row.spec["lower"], row.spec["upper"]) == (-0.7, 0.7)


def test_reduce_is_mean_unless_said_otherwise_and_goes_with_sequences() -> None:
    row = {"method": "mask", "upper": 1, "statistic": "k2"}
    assert parse_rows([{**row, "level": "sequence"}])[0].spec["reduce"] == "mean"
    assert parse_rows([{**row, "level": "geometric"}])[0].spec["reduce"] == "mean"
    assert parse_rows([{**row, "level": "geometric", "reduce": "mean"}])[0].spec["reduce"] == "mean"
    for reduce in ("mean", "max", "sum"):
        assert parse_rows([{**row, "level": "sequence", "reduce": reduce}])[0].spec["reduce"] == reduce
    assert "reduce" not in parse_rows([{**row, "level": "token"}])[0].spec


@pytest.mark.parametrize(
    "row",
    [
        {"level": "sequence", "reduce": "max"},
        {"level": "token", "statistic": "k1", "reduce": "mean"},
        {"level": "geometric", "statistic": "k3", "reduce": "max"},
        {"level": "geometric", "statistic": "k3", "reduce": "sum"},
        {"level": "sequence", "statistic": "k3", "reduce": "min"},
        {"level": "sequence", "statistic": "k3", "reduce": None},
    ],
)
def test_a_reduce_that_means_nothing_is_refused(row: dict[str, Any]) -> None:
    assert refused_field({"method": "mask", "upper": 1, **row}) == "methods[0].reduce"


def test_k_statistics_have_no_sides() -> None:
    ratio, k3 = parse_rows([{"method": "mask", "upper": 1}, {"method": "mask", "upper": 1, "statistic": "k3"}])
    assert (ratio.two_sided, k3.two_sided) == (True, False)


def test_a_row_is_restored_from_its_definition_as_it_was_and_its_definition_is_a_row() -> None:
    rows = parse_rows([{"name": name, "method": name, **CASES[name].thresholds[0]} for name in METHODS])
    presets = [replace(preset, source="") for preset in PRESETS]
    definitions = [row.definition for row in (*rows, *presets)]
    assert restored(json.loads(json.dumps(definitions))) == (*rows, *presets)
    assert parse_rows(definitions) == (*rows, *presets)


def test_a_selection_is_presets_by_name_and_rows_in_their_order() -> None:
    chosen = parse_selection(["veto", {"name": "tight", **GOOD_ROW}, "opsm", {"method": "ipo", "threshold": 1}])
    assert [row.name for row in chosen] == ["veto", "tight", "opsm", "ipo"]
    assert chosen[0] in PRESETS
    assert parse_selection([]) == ()
    assert len(parse_selection([preset.name for preset in PRESETS])) == len(PRESETS)


def test_a_row_of_ppo_clip_may_mask_as_much_as_grpo_or_gspo_do_and_others_what_their_level_may() -> None:
    kinds = {(row.method.name, row.level): row.method.kind(row.level) for row in PRESETS}
    assert kinds["ppo_clip", "token"] == "grpo"
    assert kinds["ppo_clip", "geometric"] == "gspo"
    assert kinds["ipo", "token"] == "token"
    assert {kinds["mask", "geometric"], kinds["mask", "sequence"], kinds["veto", "sequence"]} == {"sequence"}
    assert set(kinds.values()) <= set(CORRECTIONS)


def test_the_rule_of_a_row_is_bands_at_its_thresholds() -> None:
    rules = {row.name: row.rule for row in PRESETS}
    assert rules["grpo"] == Drop((Band("log_ratio", math.log(0.8), math.log(1.27)),), "apart", sides=True)
    assert rules["opsm"] == Drop((Band("log_geometric_ratio", lower=-0.01),), "apart")
    assert rules["cispo"] == Clip(Band("log_ratio", upper=math.log(5)), 0.0, 5.0)
    assert rules["trm"] == Drop((Band("log_ratio_abs_max", upper=math.sqrt(0.1)), Band("k3_mean", upper=0.001)))
    assert rules["m2po"] == Cut("log_ratio", 0.04)
    paper, vaco, cppo, _, fixed, weighed = (row.rule for row in ON_REQUEST)
    assert paper == Cut("outward_log_ratio", 0.04)
    assert vaco == Drop((Band("outward_distance", upper=0.04),))
    assert cppo == Drop((Band("outward_drift", upper=0.2, given=(0.02, None, 0.8)),))
    assert fixed == Drop((Band("outward_drift", upper=0.15, given=(0.015, 0.015, 0.8)),))
    within = Band("log_geometric_ratio", math.log(0.99), math.log(1.01))
    assert weighed == Drop((within,), sides=True, weight="log_product_ratio")
    assert weight_of(weighed) == Clip(Band("log_product_ratio"), within=within)
    (negative,) = parse_rows([{"method": "dppo", "lower": 0.1, "upper": 0.2, "zero_advantage": "negative"}])
    assert negative.rule == Drop((Band("probability_difference", -0.1, 0.2),), "apart_zero_low", sides=True)


def test_what_clips_a_weight_is_what_its_curves_say_whatever_their_names() -> None:
    curves = ratio_bounds("token")
    assert rule_of({"cap": curves["upper"]}, {"cap": 5.0}, True, False) == Clip(
        Band("log_ratio", upper=math.log(5)), upper=5.0
    )
    assert rule_of({"floor": curves["lower"]}, {"floor": 0.5}, True, False) == Clip(
        Band("log_ratio", lower=math.log(0.5)), lower=0.5
    )


@pytest.mark.parametrize("scores", [(), ("log_ratio", "k3", "kl_away"), ("log_ratio", "k3_mean")])
def test_a_rule_of_no_band_of_three_or_of_tokens_and_sequences_is_none(scores: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="one or two bands"):
        Drop(tuple(Band(score, 0.0, 1.0) for score in scores))


def test_a_bound_below_any_magnitude_drops_every_token_once() -> None:
    (row,) = parse_rows([{"method": "mask", "statistic": "k2", "upper": -0.1}])
    assert row.rule == Drop((Band("log_ratio", upper=-math.inf),))


def test_every_score_of_a_rule_and_every_one_that_is_kept_can_be_computed() -> None:
    curves = [curve for method in METHODS.values() for form in method.forms.values() for curve in form.curves.values()]
    assert {curve.score for curve in curves} <= {*TOKEN_SCORES, *SEQUENCE_SCORES}
    gaps = gap_of([[-0.5, -1.25, -0.9], [-1.3]], [[-1.0, -1.0, -1.0], [-1.0]], [1.0, -1.0])
    given = Budget(0.05, 0.1, 0.5)
    of_tokens = token_scores(gaps, [Score(0, name, given) for name in TOKEN_SCORES])
    whole = {curve.whole for curve in curves if curve.whole is not None}
    of_sequences = sequence_scores(gaps, [Score(0, name, given) for name in (*SEQUENCE_SCORES, *sorted(whole))])
    assert all(score.shape == (4,) and score.isfinite().all() for score in of_tokens)
    assert all(score.shape == (2,) and score.isfinite().all() for score in of_sequences)


def test_whether_a_row_needs_advantages_follows_from_its_rule() -> None:
    signed = {row.method.name for row in (*PRESETS, *ON_REQUEST) if row.needs_advantages}
    assert signed == {"opsm", "ppo_clip", "dppo", "m2po_paper", "vaco", "cppo"}


def test_a_row_says_what_asks_for_its_curves_and_which_of_its_thresholds_have_one() -> None:
    found = {row.name: row.whatif for row in (*PRESETS, *ON_REQUEST)}
    assert None not in found.values()
    k3 = {"method": "mask", "gap": "mismatch", "level": "geometric", "statistic": "k3", "reduce": "mean"}
    assert found["k3_sequence"] == {"query": k3, "thresholds": ["upper"]}
    assert found["dppo_kl"] is not None and found["dppo_kl"]["query"]["divergence"] == "kl"
    thresholds = {name: each["thresholds"] for name, each in found.items() if each is not None}
    assert thresholds["ipo_kl"] == ["lower", "upper"]
    assert (thresholds["trm"], thresholds["kpop"], thresholds["cppo"]) == (["max", "mean"], ["phi"], ["delta"])
    unkept = [{"level": "sequence", "statistic": "k2", "reduce": "sum"}, {"statistic": "k3"}]
    assert [row.whatif for row in parse_rows([{"method": "mask", "upper": 1, **row} for row in unkept])] == [None, None]


def test_a_threshold_is_a_ratio_where_its_curve_says_so() -> None:
    ratios = {row.method.name for row in (*PRESETS, *ON_REQUEST) for curve in row.form.curves.values()
              if curve.scale.is_ratio}  # fmt: skip
    assert ratios == {"truncate", "mask", "veto", "seq_mis"}
    [k3] = [row for row in PRESETS if row.name == "k3_sequence"]
    assert not any(curve.scale.is_ratio for curve in k3.form.curves.values())


def test_rows_that_are_compared_are_presets_the_standard_method_first() -> None:
    assert set(COMPARED) <= {row.name for row in PRESETS}
    assert len(set(COMPARED)) == len(COMPARED)
    assert COMPARED[0] == STANDARD_METHOD in METHODS


#: The tables of methods, of the rows that run, and of the settings that frameworks write rows as.
TABLES = {"methods/catalogue.py", "methods/presets.py", "methods/options.py"}
#: Where a method's name stands in the source beside its row: examples of requests and commands, the one that stands for
#: others, and a framework's own name of its loss.
ELSEWHERE = {
    "cli/questions.py": {"opsm"},
    "client/adapters/prime_rl.py": {"ipo"},
    "server/openapi.py": {"opsm"},
    "server/routes/changes.py": {"opsm"},
    "vocabulary.py": {"opsm"},
}
#: What is also the name of an array of a batch: of these the folders that read and send batches speak.
ARRAYS = METHODS.keys() & arrays.ARRAYS.keys()
OF_BATCHES = ("client/", "demo/", "wire/")
#: Methods whose names are words of English: found where they are the whole of a text.
WORDS = {"truncate", "mask", "veto"}


def test_no_method_is_named_outside_the_catalogue() -> None:
    package = Path(methods.__file__).parents[1]
    found: dict[str, set[str]] = {}
    for file in sorted(file for pattern in ("*.py", "*.js", "*.html") for file in package.rglob(pattern)):
        name = file.relative_to(package).as_posix()
        if name in TABLES or "/vendor/" in name:
            continue
        named = names_in(file) - (ARRAYS if name.startswith(OF_BATCHES) else set())
        if named:
            found[name] = named
    assert found == ELSEWHERE


def names_in(file: Path) -> set[str]:
    """Methods that a file names in its texts or by its own names, comments and docstrings left out."""
    source = file.read_text()
    quoted = set(re.findall(rf"[\"'`]({'|'.join(METHODS)})[\"'`]", source))
    others = "|".join(METHODS.keys() - WORDS)
    if file.suffix != ".py":
        code = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", source, flags=re.S)
        return quoted | set(re.findall(rf"\b({others})\b", code))
    if not quoted and not re.search(others, source):  # the rest need not be parsed
        return set()
    tree = ast.parse(source)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in bare]
    within = "\n".join(text for text in texts if isinstance(text, str))
    own = "\n".join(name for node in ast.walk(tree) for name in identifiers(node))
    return (
        {text for text in texts if isinstance(text, str) and text in METHODS}
        | set(re.findall(rf"\b({others})\b", within))
        | set(re.findall(rf"(?<![a-zA-Z0-9])({others})(?![a-zA-Z0-9])", own))
    )


def identifiers(node: ast.AST) -> list[str]:
    """The names that a node of a syntax tree has by itself."""
    return [name for field in ("id", "attr", "arg", "name") if isinstance(name := getattr(node, field, None), str)]
