"""From a question to a table: one column per query, one row for each set of labels, the worst first.

The columns are what the legends say; the first one sorts, unless the question has a column called `sort`. Cells with
a run lead to the run's dashboard and its live page, cells with an alert to its section of the runbook.
"""

import string
from typing import Any

from grafana_foundation_sdk.builders import common
from grafana_foundation_sdk.builders import table as build
from grafana_foundation_sdk.models import common as choices
from grafana_foundation_sdk.models import dashboard

from scripts.dashboards.model import Question

CELL_LINKS = {
    "run": {
        "This run": "/d/offpolicy-run?var-run=${__data.fields.run}&${datasource:queryparam}&${job:queryparam}",
        "Live page": "${service_url}/runs/${__data.fields.run}",
    },
    "alert": {"What to do": "${service_url}/runbook#${__data.fields.alert}"},
}


def table(question: Question) -> Any:
    """The builder of a table; the queries themselves are set by the caller."""
    titles = [query.legend for query in question.queries]
    order = common.TableSortByFieldState().display_name(titles[0]).desc(True)
    panel = build.Panel().show_header(True).cell_height(choices.TableCellHeight.SM).sort_by([order])
    panel.filterable(True).with_transformation(dashboard.DataTransformerConfig("merge", options={}))
    panel.with_transformation(dashboard.DataTransformerConfig("organize", options=_organised(titles)))
    for query in question.queries:
        if query.unit:
            panel.override_by_name(query.legend, [dashboard.DynamicConfigValue("unit", query.unit)])
    for field, pages in CELL_LINKS.items():
        found = [{"title": title, "url": url} for title, url in pages.items()]
        panel.override_by_name(field, [dashboard.DynamicConfigValue("links", found)])
    return panel


def _organised(titles: list[str]) -> dict[str, object]:
    """Grafana calls the values of several queries `Value #A`, of a single one `Value`."""
    fields = [f"Value #{letter}" for letter in string.ascii_uppercase] if len(titles) > 1 else ["Value"]
    return {"excludeByName": {"Time": True}, "renameByName": dict(zip(fields, titles, strict=False))}
