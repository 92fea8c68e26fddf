"""Rehearsal: what pages ask, asked once before the service is ready, so that nobody waits for what loads with it.

Of the run that a list shows first. The first calls take some tenths of a second whatever the run: files that are read,
code that is imported, tables that are worked out.
"""

from collections.abc import Iterator
from typing import Final

from offpolicy_monitor.methods import METHODS
from offpolicy_monitor.pages import assets
from offpolicy_monitor.pages.render import page
from offpolicy_monitor.pages.report import POINTS, fields_of
from offpolicy_monitor.server.http.answers import render
from offpolicy_monitor.server.routes.changes import with_methods_in_effect
from offpolicy_monitor.server.routes.diagnosis import diagnosis
from offpolicy_monitor.server.routes.recommendations import recommendations
from offpolicy_monitor.server.routes.whatif import Asked, curves
from offpolicy_monitor.server.services import Services

#: The method that the page of what-if shows of a run that names no correction.
SHOWN: Final = METHODS["opsm"]


def of_pages(services: Services) -> int:
    """Answer what the page of a run and that of what-if ask; how many answers these were, 0 where no run has a step."""
    store = services.store
    page("live.html", "/runs/{run}", "run", run="", here="run", title="")
    for name in (*assets.SCRIPTS, assets.STYLE, assets.PLOTTING):
        assets.content(name)
    views, _ = store.view_runs(1, order="worst")
    found = [view.shown["run"] for view in views if view.shown["last_step"] is not None]
    answers = [answer for run in found for answer in _about(services, run)]
    for answer in answers:
        render(answer)
    return len(answers)


def _about(services: Services, run: str) -> Iterator[object]:
    store, about = services.store, with_methods_in_effect(services.store.run(run))
    yield services.verdicts.read(run)
    yield store.tables(run, fields_of(about), None, None, POINTS, "step")
    yield diagnosis(store, run)
    yield recommendations(store, run)
    yield curves(store, run, Asked(SHOWN.name, SHOWN.gap, SHOWN.levels[0]))
