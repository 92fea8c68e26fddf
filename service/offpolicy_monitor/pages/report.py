"""A run's page as one file to attach to an issue: styles, scripts and the API's answers of one moment, all in it.

The script is the live page's own. It asks nobody: each call that it makes is in the element `answers`, by its path and
query, and the policy header forbids everything else. Links lead to the service that answered.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pages import assets
from offpolicy_monitor.pages.render import SYSTEM, rendered

SCRIPT: Final = "bundles/run.js"
#: As static/charts/columns.js and static/pages/run.js ask.
POINTS, APART, ALERTS = 1500, 5, 500
_FIELDS: Final = "pages/run/fields.js"

#: Answers a call, "v1/runs/r1/verdict"; None where there is no such thing.
Get = Callable[[str], dict[str, Any] | None]


def answers(run: str, get: Get) -> dict[str, dict[str, Any]]:
    """{call: answer} of all calls that the page of a run makes; Refusal where there is no such run.

    The worst sequence is that of the newest step and of the step where it began.
    """
    base = f"v1/runs/{run}"
    about = get(base)
    if about is None:
        raise Refusal(404, "unknown-run", f"there is no run named {run}")
    listed = urlencode({"run": run, "merge": APART, "limit": ALERTS})
    series = call_of_series(run, about)
    paths = [f"{base}/verdict", series, f"v1/alerts?{listed}", f"{base}/rules", f"{base}/diagnosis", "v1/figures"]
    found = {base: about, **_answered(paths, get)}
    looked_at = {step for step in (_newest(found[series]), found[f"{base}/verdict"]["since_step"]) if step is not None}
    return {**found, **_answered([f"{base}/worst?from={step}&to={step}&limit=1" for step in sorted(looked_at)], get)}


def call_of_series(run: str, about: Mapping[str, Any]) -> str:
    """The one call for every figure of the first screen; which these are stands in the page's own script."""
    asked = {"field": fields_of(about), "by": "step", "points": POINTS, "layout": "tables"}
    return f"v1/runs/{run}/series?" + urlencode(asked, doseq=True)


def fields_of(about: Mapping[str, Any]) -> list[str]:
    """The figures that the first screen of a run draws, as its script asks for them."""
    used = [about["correction"]] if about["correction"] else []
    return [*_fixed(), *(f"methods.{name}.masked_token_fraction" for name in (*used, *about["compared"]))]


def document(run: str, found: Mapping[str, Any], service_url: str, made: float) -> str:
    """The file as HTML. `service_url`: what links begin with; `made` in Unix seconds."""
    return rendered(
        "report.html",
        run=run,
        title=run,
        here="run",
        root=service_url.rstrip("/") + "/",
        made=f"{datetime.fromtimestamp(made, UTC):%Y-%m-%d %H:%M} UTC",
        icon=_data("image/svg+xml", assets.text("icon.svg")),
        styles=assets.text(assets.STYLE),
        dark=assets.text(assets.DARK),
        theme=SYSTEM,
        uplot=assets.text(assets.PLOTTING),
        answers=in_script(found),
        script="",
        drawing=assets.text(SCRIPT),
    )


def in_script(value: object) -> str:
    """JSON that nothing in it can end the script of."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _answered(paths: list[str], get: Get) -> dict[str, dict[str, Any]]:
    answered = {path: get(path) for path in paths}
    return {path: answer for path, answer in answered.items() if answer is not None}


def _newest(series: Mapping[str, Any]) -> int | None:
    return max((step for table in series["tables"] for step in table["step"]), default=None)


def _fixed() -> list[str]:
    """The list of the script that names the figures of the first screen."""
    [found] = re.findall(r"^const FIXED = \[(.*?)\];$", assets.text(_FIELDS), re.M | re.S)
    return re.findall(r'"([^"]+)"', found)


def _data(media_type: str, text: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(text.encode()).decode()}"
