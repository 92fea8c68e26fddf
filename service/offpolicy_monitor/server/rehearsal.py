"""Rehearsal: what pages ask, asked once before the service is ready, so that nobody waits for what loads with it.

Of the run that a list shows first, and of the longest one, whose history takes longest to read. The very first calls
take some tenths of a second whatever the run: files that are read, code that is imported, tables that are worked out.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from offpolicy_monitor.pages import assets
from offpolicy_monitor.pages.render import page
from offpolicy_monitor.pages.report import POINTS, fields_of
from offpolicy_monitor.server.http.answers import render
from offpolicy_monitor.server.routes.changes import with_methods_in_effect
from offpolicy_monitor.server.routes.diagnosis import diagnosis
from offpolicy_monitor.server.routes.recommendations import recommendations
from offpolicy_monitor.server.routes.whatif import Asked, curves
from offpolicy_monitor.server.services import Services
from offpolicy_monitor.store import MOST_RUNS

#: Rows that the page of what-if shows side by side.
SIDE_BY_SIDE: Final = 2
#: Runs whose pages are rehearsed, and seconds after which no other one is begun.
MOST_REHEARSED: Final = 2
LONGEST: Final = 1.0


def of_pages(services: Services) -> int:
    """Answer what the page of a run and that of what-if ask; how many answers these were. Nothing without a run."""
    began = time.monotonic()
    views, _ = services.store.view_runs(MOST_RUNS, order="worst")
    begun = [view.shown for view in views if view.shown["last_step"] is not None]
    if begun:
        page("live.html", "/runs/{run}", "run", run="", here="run", title="")
        for name in (*assets.SCRIPTS, assets.STYLE, assets.PLOTTING):
            assets.content(name)
    longest = sorted(begun, key=lambda shown: -shown["steps"])
    answers = 0
    for run in list(dict.fromkeys(shown["run"] for shown in (*begun[:1], *longest)))[:MOST_REHEARSED]:
        if time.monotonic() - began < LONGEST:
            answers += len([render(answer) for answer in _about(services, run)])
    services.store.unasked()
    return answers


def _about(services: Services, run: str) -> Iterator[object]:
    store, about = services.store, with_methods_in_effect(services.store.run(run))
    yield services.verdicts.read(run)
    yield store.tables(run, fields_of(about), None, None, POINTS, "step")
    yield diagnosis(store, run)
    yield recommendations(store, run)
    rows = {row["name"]: row for row in about["methods"]}
    shown = [name for name in (about["correction"], *about["compared"]) if name in about["whatif"]]
    for name in shown[:SIDE_BY_SIDE]:
        kept = about["whatif"][name]
        query = dict(kept["query"])
        asked = Asked(query.pop("method"), query.pop("gap"), query.pop("level"), tuple(query.items()))
        given = [rows[name][threshold] for threshold in kept["thresholds"] if threshold in rows[name]]
        yield curves(store, run, asked)
        if given:
            yield curves(store, run, replace(asked, thresholds=(given[-1],), row=name))
