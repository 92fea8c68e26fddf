"""What-if curves against rows that really ran: within the stated error everywhere, exact at the tables' own edges."""

import time
from collections.abc import Callable, Mapping
from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.tables import OF_INGESTED
from offpolicy_monitor.methods import METHODS, Method, parse_rows
from offpolicy_monitor.methods.curve import SECOND_MOMENT, Curve
from offpolicy_monitor.methods.model import Form
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.tables.whatif import MASS_ERROR, whatif_curve

Floats = NDArray[np.float64]

#: A token or two whose score equals an edge in every bit, of twelve thousand.
TIE = 3e-4
#: Thresholds of each bound: as many edges of its table at most, and as many between. As many rows are asked for of any
#: distribution, so that what is worked out once for a list of names is worked out once for all tests.
EDGES, BETWEEN = 4, 2
Draw = Callable[[np.random.Generator, int], Floats]

#: Log-ratios of tokens; grids lie off the edges, since what equals a threshold may fall to either side of it.
DISTRIBUTIONS: Mapping[str, Draw] = {
    "bf16 noise": lambda source, n: source.normal(0, 0.01, n),
    "moe noise": lambda source, n: source.normal(-0.002, 0.06, n),
    "fp8 noise": lambda source, n: source.normal(-0.02, 0.3, n),
    "laplace": lambda source, n: source.laplace(0, 0.05, n),
    "student t with two degrees": lambda source, n: 0.02 * source.standard_t(2, n),
    "cauchy": lambda source, n: (0.01 * source.standard_cauchy(n)).clip(-60, 60),
    "skewed": lambda source, n: 0.02 - source.exponential(0.03, n),
    "uniform": lambda source, n: source.uniform(-0.5, 0.5, n),
    "rare outliers": lambda source, n: np.where(
        source.random(n) < 0.01, source.normal(0, 3, n), source.normal(0, 0.01, n)
    ),
    "two humps": lambda source, n: source.choice([-0.3, 0.25], n) + source.normal(0, 0.02, n),
    "mostly exact zeros": lambda source, n: np.where(source.random(n) < 0.9, 0.0, source.normal(0, 0.2, n)),
    "all exact zeros": lambda source, n: np.zeros(n),
    "a grid": lambda source, n: np.round(source.normal(0, 0.2, n) / 0.07) * 0.07,
    "one value": lambda source, n: np.full(n, -0.0123),
    "far apart": lambda source, n: source.choice([-85.0, -0.001, 0.001, 85.0], n),
}


def batch_of(draw: Draw, per_token: bool, seed: int) -> RaggedBatch:
    source = np.random.default_rng(seed)
    lengths = np.concatenate([source.integers(1, 300, 80), [1, 1, 2, 3]])
    count = int(lengths.sum())
    mu = -source.exponential(1.2, count)
    mu[source.random(count) < 0.2] = -1e-4
    d = draw(source, count)
    old = mu + d * source.uniform(0.5, 1.5, len(lengths)).repeat(lengths)
    columns = {"sampling_logprobs": mu, "old_logprobs": old, "logprobs": old + 0.3 * draw(source, count)}
    columns = {name: column.clip(max=-1e-6).astype(np.float32) for name, column in columns.items()}
    advantages = source.choice([-1.5, -0.5, 0.0, 0.7, 1.0], count if per_token else len(lengths)).astype(np.float32)
    if per_token:
        return RaggedBatch.from_positions(lengths, {**columns, "advantages": advantages}, {})
    return RaggedBatch.from_positions(lengths, columns, {"advantages": advantages})


#: Thresholds that drop nothing, of methods that must be given all of them.
LOOSE: Mapping[str, dict[str, float]] = {
    "dppo": {"lower": 1e9, "upper": 1e9},
    "ppo_clip": {"lower": 1.0, "upper": 1e9},
    "cispo": {"lower": 1.0, "upper": 1e9},
    "trm": {"max": 1e9, "mean": 1e9},
}


def row_of(method: Method, level: str, variant: str, name: str, threshold: float) -> dict[str, Any]:
    """The row that drops by this threshold alone."""
    row: dict[str, Any] = {"method": method.name, "gap": "total", "level": level, **LOOSE.get(method.name, {})}
    given = [option for option in variant.split(":") if option]
    row |= {name: option for name, choice in method.choices.items() for option in given if option in choice.options}
    return row | {name: threshold}


def kept_forms() -> list[tuple[Method, str, str, Form]]:
    """Every method at every level and in every variant that what-if keeps."""
    return [
        (method, level, variant, form)
        for method in METHODS.values()
        for (level, variant), form in method.forms.items()
        if form.kept
    ]


def ran(batch: RaggedBatch, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    parsed = parse_rows([{"name": str(index), **row} for index, row in enumerate(rows)])
    answered = Measurer("cpu").measure(batch, parsed, Origin(), ()).figures()["methods"]
    return [answered[str(index)] for index in range(len(rows))]


def exact(figures: Mapping[str, Any], weights: bool) -> tuple[float, ...]:
    if weights:
        return (figures["truncated_token_fraction"],)
    return tuple(figures[f"masked_{name}"] for name in ("token_fraction", "sequence_fraction", "advantage_mass"))


def stated(curve: Mapping[str, Any], index: int, weights: bool) -> tuple[float, ...]:
    prefix = "truncated" if weights else "masked"
    names = ("token_fraction",) if weights else ("token_fraction", "sequence_fraction", "advantage_mass")
    return tuple(curve[f"{prefix}_{name}"][index] for name in names)


def kept(batch: RaggedBatch) -> StepSummary:
    """Summaries of a batch whose rows ask for every method at the total gap."""
    rows = {
        method.name: row_of(method, level, variant, list(form.kept)[-1], 1.0)
        for method, level, variant, form in kept_forms()
    }
    parsed = parse_rows([{"name": name, **row} for name, row in rows.items()])
    return Measurer("cpu").measure(batch, parsed, Origin(), OF_INGESTED)


@pytest.mark.parametrize("per_token", [False, True], ids=["advantage per sequence", "advantage per token"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_curve_is_within_its_stated_error_of_rows_that_ran(name: str, per_token: bool) -> None:
    batch = batch_of(DISTRIBUTIONS[name], per_token, seed=len(name))
    summary = kept(batch)
    source = np.random.default_rng(1)
    rows, expected = [], []
    for method, level, variant, form in kept_forms():
        weights = method.reweights
        for bound, curve in form.kept.items():
            edges = whatif_curve([summary], "total", curve, None, weights)
            chosen = [
                t for t in edges["threshold"][:: max(1, -(-len(edges["threshold"]) // EDGES))] if t >= form.lowest
            ]
            between = [
                curve.scale.threshold(side * 10.0 ** source.uniform(-3.5, 1)) for side in _sides(curve) * BETWEEN
            ]
            found = [(t, True) for t in chosen] + [(t, False) for t in between if t >= form.lowest]
            asked = list(islice(cycle(found), EDGES + BETWEEN))
            answer = whatif_curve([summary], "total", curve, [threshold for threshold, _ in asked], weights)
            for index, (threshold, own) in enumerate(asked):
                rows.append(row_of(method, level, variant, bound, threshold))
                error = answer["error"][index]
                if own and curve.scale is not SECOND_MOMENT:
                    assert error <= MASS_ERROR, (method.name, bound, threshold)
                expected.append((stated(answer, index, weights), error + (TIE if curve.whole else 0), weights))
            assert answer["max_error"] == max(answer["error"], default=0.0)
    for row, figures, (got, error, weights) in zip(rows, ran(batch, rows), expected, strict=True):
        wanted = exact(figures, weights)
        within = [one == other or abs(one - other) <= error + 1e-12 for one, other in zip(got, wanted, strict=True)]
        assert all(within), (row, got, wanted, error)


def _sides(curve: Curve) -> list[int]:
    return [-1] if curve.above is False else [1]


def test_many_steps_are_the_sum_of_their_own_cuts_and_cost_little() -> None:
    some = [kept(batch_of(DISTRIBUTIONS[name], False, seed=3)) for name in ("moe noise", "fp8 noise", "rare outliers")]
    curve = METHODS["m2po"].forms["token", ""].curves["threshold"]
    thresholds = np.geomspace(1e-4, 1.0, 100).tolist()
    alone = [whatif_curve([summary], "total", curve, thresholds, False) for summary in some]
    tokens = np.array([summary.gaps["total"].sums["tokens"] for summary in some])
    whole = whatif_curve(some, "total", curve, thresholds, False)
    shares = np.array([answer["masked_token_fraction"] for answer in alone])
    assert whole["masked_token_fraction"] == pytest.approx(tokens @ shares / tokens.sum(), rel=1e-12)

    def seconds(summaries: list[StepSummary]) -> float:
        began = time.thread_time()
        whatif_curve(summaries, "total", curve, thresholds, False)
        return time.thread_time() - began

    assert any(seconds(some * 67) < 2.0 for _ in range(3))
