"""GET /v1/runs/{run}/whatif: what a rule would drop as a function of its threshold, from the histograms of any steps.

Checks what is asked against the catalogue and joins the store's summaries with the reader of curves in summary.tables.
Knows no SQL.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Annotated, Any, Final

from fastapi import Query, Request

from offpolicy_monitor.errors import Refusal, quoted
from offpolicy_monitor.methods import GAPS, METHODS, PRESETS, Method, MethodRow, restored
from offpolicy_monitor.methods.curve import Curve
from offpolicy_monitor.methods.model import Choice, Form
from offpolicy_monitor.methods.options import settings
from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.http.parameters import First, KnownRun, Last
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store
from offpolicy_monitor.summary.stacked import Stacked
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables.whatif import are_kept, whatif_curve

#: Steps that are read: all of a shorter range, else this many spread evenly over it.
MOST_STEPS: Final = 200
MOST_THRESHOLDS: Final = 1000

MethodName = Annotated[str, Query(max_length=64, description="Method of the catalogue.")]
Gap = Annotated[str | None, Query(max_length=64, description="Gap; the method's own if not named.")]
Level = Annotated[str | None, Query(max_length=64, description="Level; the method's first if not named.")]
Thresholds = Annotated[
    list[float] | None,
    Query(alias="threshold", max_length=MOST_THRESHOLDS, description="Points of interest; repeat it for several."),
]

RowName = Annotated[
    str | None,
    Query(max_length=64, description="The row whose other thresholds `config` keeps; the first if not named."),
]

router = store_router()

#: What methods may be told beside thresholds, by name: each is a query parameter.
OPTIONS: Final[Mapping[str, Choice]] = {
    name: choice for method in METHODS.values() for name, choice in method.whatif_choices.items()
}


def with_options(route: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The route with a query parameter for each of OPTIONS, in place of its `options`."""
    declared = signature(route)
    asked = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_query(choice))
        for name, choice in OPTIONS.items()
    ]
    fixed = [parameter for name, parameter in declared.parameters.items() if name != "options"]
    route.__signature__ = declared.replace(parameters=[*fixed, *asked])  # pyrefly: ignore[missing-attribute]
    return route


def _query(choice: Choice) -> object:
    return Annotated[str | None, Query(max_length=64, description=choice.text)]


@router.get(
    "/runs/{run}/whatif",
    summary="What a rule would drop at other thresholds",
    responses=openapi.answers(models.WhatIf, "A curve; two-sided rules have one per bound.", 404),
)
@with_options
def get_whatif(
    run: KnownRun,
    request: Request,
    method: MethodName,
    gap: Gap = None,
    level: Level = None,
    threshold: Thresholds = None,
    row: RowName = None,
    first: First = None,
    last: Last = None,
    **options: str | None,
) -> dict[str, Any]:
    """Of the last gradient step of each step in the range, up to 200 of them spread evenly; `steps` names the first and
    the last one read. Without `threshold`, at the histograms' own edges, where counts are exact. Steps times thresholds
    are bounded by OFFPOLICY_MAX_WHATIF_POINTS. At one threshold, each curve's `config` is the setting to paste."""
    found = METHODS[_one_of("method", method, tuple(METHODS))]
    gap = _one_of("gap", gap or found.gap, GAPS)
    level = _one_of("level", level or found.levels[0], found.levels)
    _check(threshold, found, _form(found, level, options))
    store = services.of(request).store
    if threshold:
        steps = min(store.count_steps(run, first, last), MOST_STEPS)
        _check_points(steps, len(threshold), services.of(request).settings)
    thresholds = None if threshold is None else tuple(threshold)
    said = tuple((name, value) for name, value in options.items() if value is not None)
    return curves(store, run, Asked(method, gap, level, said, thresholds, row, first, last))


@dataclass(frozen=True)
class Asked:
    """What is asked of a run, checked; `options` are pairs of a name and what was said of it."""

    method: str
    gap: str
    level: str
    options: tuple[tuple[str, str], ...] = ()
    thresholds: tuple[float, ...] | None = None
    row: str | None = None
    first: int | None = None
    last: int | None = None


def curves(store: Store, run: str, asked: Asked) -> dict[str, Any]:
    """What is answered; found once while the run stands still."""
    return store.answered(run, asked, lambda: _curves(store, run, asked))


def _curves(store: Store, run: str, asked: Asked) -> dict[str, Any]:
    found, options = METHODS[asked.method], dict(asked.options)
    form = _form(found, asked.level, options)
    read, in_range = store.spread_summaries(run, asked.first, asked.last, MOST_STEPS)
    summaries = [summary for _, _, summary in read]
    _check_kept(summaries, found, asked.gap, form.kept)
    answers = {
        name: {
            **whatif_curve(summaries, asked.gap, curve, asked.thresholds, found.reweights),
            "ratio": curve.scale.is_ratio,
        }
        for name, curve in form.kept.items()
    }
    running = _running(store.methods(run))
    if asked.row is not None:
        _one_of("row", asked.row, tuple(running))
    rows = _rows_like(running, found, asked.gap, asked.level, options)
    if asked.thresholds is not None and len(asked.thresholds) == 1:
        kept = next((each for each in rows if asked.row in (None, each.name)), None)
        base = {"method": asked.method, "gap": asked.gap, "level": asked.level, **options} | (kept.spec if kept else {})
        for name, answer in answers.items():
            answer["config"], answer["no_option"] = settings({**base, name: asked.thresholds[0]})
    variant = found.whatif_variant(options)
    return {
        "method": asked.method,
        "gap": asked.gap,
        "level": asked.level,
        **options,
        **({"variant": variant} if variant != found.variants(asked.level)[0] else {}),
        "parameter": found.only,
        "parameters": list(answers),
        "presets": _presets(rows, form),
        "steps": [read[0][0], read[-1][0]] if read else [],
        "steps_read": len(read),
        "steps_in_range": in_range,
        "max_error": max(answer["max_error"] for answer in answers.values()),
        **(answers if found.only is None else answers[found.only]),
    }


def _running(chosen: Sequence[Mapping[str, Any]] | None) -> Mapping[str, MethodRow]:
    """The presets, and the rows that run on a run, by their names."""
    return {row.name: row for row in (*PRESETS, *(() if chosen is None else restored(chosen)))}


def _rows_like(
    rows: Mapping[str, MethodRow], method: Method, gap: str, level: str, options: Mapping[str, str | None]
) -> list[MethodRow]:
    """Those that differ from what is asked in their thresholds alone."""
    variant = method.whatif_variant(options)
    return [
        row
        for row in rows.values()
        if row.method is method and (row.gap, row.level) == (gap, level) and method.whatif_variant(row.spec) == variant
    ]


def _presets(rows: Sequence[MethodRow], form: Form) -> list[dict[str, Any]]:
    """Each of their thresholds, to be marked on the axis."""
    found = [(row.name, name, row.spec.get(name)) for row in rows for name in form.kept]
    return [
        {"name": name, "parameter": parameter, "threshold": threshold}
        for name, parameter, threshold in found
        if threshold is not None
    ]


def _form(method: Method, level: str, asked: Mapping[str, str | None]) -> Form:
    """What a method with these options compares, each as a row would have it; only where what-if keeps it."""
    for name, value in asked.items():
        if value is not None:
            _one_of(name, value, method.choices[name].options if name in method.choices else ())
    kept, found = method.variants(level), method.whatif_variant(asked)
    if found not in kept:
        chosen = [name for name, choice in method.choices.items() if asked.get(name) not in (None, choice.options[0])]
        of = f"is kept for {', '.join(kept)}; got {found}" if kept else "is not kept"
        message = f"what-if of {method.name} at level {level} {of}"
        raise Refusal.of_field(422, "invalid-parameter", ["method", *chosen][-1], message)
    return method.forms[level, found]


def _one_of(field: str, value: str, options: Sequence[str]) -> str:
    if value not in options:
        allowed = f"must be one of {', '.join(options)}" if options else "does not go with this method"
        raise Refusal.of_field(422, "invalid-parameter", field, f"{allowed}; got {quoted(value)}")
    return value


def _check(thresholds: Sequence[float] | None, method: Method, form: Form) -> None:
    for threshold in thresholds or ():
        if not math.isfinite(threshold) or threshold < form.lowest:
            message = f"must be a finite number of at least {form.lowest:g} for {method.name}; got {threshold}"
            raise Refusal.of_field(422, "invalid-parameter", "threshold", message)


def _check_points(steps: int, thresholds: int, settings: Settings) -> None:
    """Refuse before anything is read what would take too long."""
    if steps * thresholds > settings.max_whatif_points:
        got, variable = f"{steps} steps x {thresholds} thresholds", settings.variable("max_whatif_points")
        raise Refusal.over_limit(422, "over-limit", "threshold", got, settings.max_whatif_points, variable)


def _check_kept(summaries: Sequence[StepSummary], method: Method, gap: str, curves: Mapping[str, Curve]) -> None:
    """Refuse where the gap was measured, but nobody asked for this method there."""
    tables = Stacked([summary.arrays for summary in summaries])
    if any(are_kept(tables, gap, curve).any() for curve in curves.values()):
        return
    if any(summary.gaps[gap].sums.get("tokens") for summary in summaries if gap in summary.gaps):
        where = (
            "where a row of the run puts it"
            if method.asked
            else (f"at its own gap, {method.gap}, and where a row of the run puts it")
        )
        message = (
            f"{method.name} is kept {where}; "
            f"PATCH the run with a row of {method.name} at {gap} to have it of later steps"
        )
        raise Refusal.of_field(422, "not-kept", "gap", message)
