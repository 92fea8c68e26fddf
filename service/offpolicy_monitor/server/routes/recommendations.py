"""GET /v1/runs/{run}/recommendations: thresholds for a wanted mask rate, and which presets do nothing or too much.

Says which curves a run may want, its own rows' and each method's at its own gap; summary.recommend does the thinking.
Knows no SQL.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Query, Request

from offpolicy_monitor.methods import METHODS, Method
from offpolicy_monitor.methods.curve import Curve
from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.http.parameters import First, KnownRun, Last
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.store import Store
from offpolicy_monitor.summary.recommend import Sample, preset_states, recommend
from offpolicy_monitor.summary.step import StepSummary

#: The newest steps of the range that are looked at.
MOST_STEPS: Final = 50
#: The share of the tokens that is dropped where nobody wants another.
TARGET: Final = 0.01

Target = Annotated[float, Query(gt=0, lt=1, description="Wanted share of tokens dropped.")]
KeptCurves = tuple[str, str, str, str]

router = store_router()


@router.get(
    "/runs/{run}/recommendations",
    summary="Thresholds for a wanted mask rate",
    responses=openapi.answers(models.Recommendations, "A threshold per bound, and the state of every preset.", 404),
)
def get_recommendations(
    run: KnownRun, request: Request, target: Target = TARGET, first: First = None, last: Last = None
) -> dict[str, Any]:
    """From the newest 50 steps in the range that count. A rule with two bounds is given half of `target` on each."""
    return recommendations(services.of(request).store, run, target, first, last)


def recommendations(
    store: Store, run: str, target: float = TARGET, first: int | None = None, last: int | None = None
) -> dict[str, Any]:
    """What is answered; found once while the run stands still."""
    asked = ("recommendations", target, first, last)
    return store.answered(run, asked, lambda: _recommendations(store, run, target, first, last))


def _recommendations(store: Store, run: str, target: float, first: int | None, last: int | None) -> dict[str, Any]:
    found = store.summaries(run, first, last, MOST_STEPS)
    sample = Sample([summary for _, _, summary in found])
    return {
        "target": target,
        "methods": list(_thresholds(sample, target)),
        "presets": preset_states(sample),
        "steps": [found[0][0], found[-1][0]] if found else [],
    }


def _thresholds(sample: Sample, target: float) -> Iterator[dict[str, Any]]:
    for key in _curves_kept(sample.summaries):
        name, gap, level, variant = key
        method = METHODS[name]
        curves = method.forms[level, variant].kept
        for parameter, curve in curves.items():
            advice = recommend(sample, gap, curve, target / len(curves))
            row = {"method": name, "gap": gap, "level": level, "parameter": parameter}
            row |= {"variant": variant} if variant != method.variants(level)[0] else {}
            if advice is not None:
                yield {**row, **advice, "summary": _words(row, advice, curve)}


def _words(row: Mapping[str, Any], advice: Mapping[str, Any], curve: Curve) -> str:
    share, longer = advice["masked_token_fraction"], advice["masked_token_fraction_at_double_length"]
    verb = "truncates" if METHODS[row["method"]].reweights else "drops"
    words = (
        f"{row['method']} at {row['gap']}, {row['level']}: {row['parameter']} = {advice['threshold']:.4g} {verb} "
        f"{share:.2%} of the tokens ({advice['low']:.4g} to {advice['high']:.4g} by resampling the steps)"
    )
    return words + ("." if curve.whole else f"; of answers twice as long, {longer:.2%}.")


def _curves_kept(summaries: Sequence[StepSummary]) -> list[KeptCurves]:
    """(method, gap, level, variant) of each method at its own gap and of each row of the newest step, once each.

    Of methods that run on request, those of rows alone.
    """
    found: dict[KeptCurves, None] = {}
    for method in (method for method in METHODS.values() if not method.asked):
        found.update(dict.fromkeys(_known(method, method.gap, method.levels[0], {})))
    for spec in (row.spec for row in summaries[-1].methods.values()) if summaries else ():
        if spec is not None and spec["method"] in METHODS:
            found.update(dict.fromkeys(_known(METHODS[spec["method"]], spec["gap"], spec["level"], spec)))
    return list(found)


def _known(method: Method, gap: str, level: str, spec: Mapping[str, Any]) -> Iterator[KeptCurves]:
    """The key of a row, where what-if keeps its variant."""
    variant = method.whatif_variant(spec)
    if variant in method.variants(level):
        yield method.name, gap, level, variant
