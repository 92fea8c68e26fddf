"""From a board to a dashboard of the SDK: variables, annotations, links, sections, and a position for every panel.

Ids and positions are set here and nowhere guessed, so that a panel that moves keeps its address.
"""

import json
from typing import Any

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard
from offpolicy_monitor.export import DEFAULT_SERVICE_URL

from scripts.dashboards.model import JOB, RUN, Board, Section
from scripts.dashboards.panels import SOURCE, panel

COLUMNS = 24
WINDOWS = ("5m", "15m", "30m", "1h", "3h", "6h")
WINDOW = "30m"  # a step may last half an hour, and a rate over less than a step is 0
QUERY_VARIABLES = {
    "job": ("Job", "label_values(offpolicy_build_info, job)", "Scrape job of the service."),
    "run": ("Run", f"label_values(offpolicy_step{{{JOB}}}, run)", "Runs of which the service shows figures."),
    "method": ("Method", f"label_values(offpolicy_masked_ratio{{{RUN}}}, method)", "Rows that run on every batch."),
}


class PrometheusAnnotation(dashboard.AnnotationQuery):
    """An annotation with what Grafana's Prometheus data source reads beside the SDK's fields."""

    def to_json(self) -> dict[str, object]:
        formats = {"titleFormat": "{{alert}} {{severity}}", "textFormat": "{{run}}", "tagKeys": "run,severity"}
        return {**super().to_json(), **formats, "step": "60s"}


def render(board: Board) -> str:
    """The dashboard's JSON as it is checked in."""
    return json.dumps(build_dashboard(board), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def build_dashboard(board: Board) -> dashboard.Dashboard:
    """The dashboard in the SDK's model."""
    frame = build.Dashboard(board.title).uid(board.uid).description(board.description).tags(["offpolicy-monitor"])
    frame.time("now-6h", "now").refresh("30s").timezone("browser").editable()
    frame.tooltip(dashboard.DashboardCursorSync.CROSSHAIR).links(_links()).variables(_variables(board))
    built = frame.build()
    built.annotations = dashboard.AnnotationContainer([_alerts(board)])
    built.panels = _placed(board)
    return built


def _variables(board: Board) -> list[Any]:
    chosen = dashboard.VariableOption(selected=True, text="Prometheus", value="prometheus")
    source = build.DatasourceVariable("datasource").label("Data source").type("prometheus").current(chosen)
    names = ["job", *(name for name in board.variables if name != "window")]
    windows = [_window()] if "window" in board.variables else []
    return [source, *(_query_variable(name, board) for name in names), *windows, _service_url()]


def _query_variable(name: str, board: Board) -> Any:
    label, query, meaning = QUERY_VARIABLES[name]
    variable = build.QueryVariable(name).label(label).description(meaning).datasource(SOURCE).multi(True)
    variable.query({"query": query, "refId": name}).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    if any(section.repeat == name for section in board.sections):
        return variable  # Grafana takes the first value; all of them would be a page of hundreds of panels
    everything = dashboard.VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.include_all(True).all_value(".*").current(everything)


def _window() -> Any:
    options = [dashboard.VariableOption(selected=value == WINDOW, text=value, value=value) for value in WINDOWS]
    variable = build.CustomVariable("window").label("Window").values(",".join(WINDOWS)).options(options)
    variable.current(dashboard.VariableOption(selected=True, text=WINDOW, value=WINDOW))
    return variable.description("What rates are taken over; longer than a step of the run, or they read 0.")


def _service_url() -> Any:
    shown = dashboard.VariableOption(selected=True, text=DEFAULT_SERVICE_URL, value=DEFAULT_SERVICE_URL)
    variable = (
        build.TextBoxVariable("service_url").label("Service URL").default_value(DEFAULT_SERVICE_URL).current(shown)
    )
    return variable.options([shown]).description("Where the live page and the runbook are, as the browser sees it.")


def _links() -> list[Any]:
    link = dashboard.DashboardLinkType.LINK
    others = build.DashboardLink("Dashboards").type(dashboard.DashboardLinkType.DASHBOARDS).as_dropdown(True)
    others.tags(["offpolicy-monitor"]).include_vars(True).keep_time(True)
    pages = {"Live page": "${service_url}/", "Runbook": "${service_url}/runbook"}
    return [
        others,
        *(build.DashboardLink(name).type(link).url(url).target_blank(True) for name, url in pages.items()),
    ]


def _alerts(board: Board) -> dashboard.AnnotationQuery:
    selector = RUN if "run" in board.variables else JOB
    expression = f"max by (run, alert, severity) (offpolicy_alert_active{{{selector}}}) == 1"
    return PrometheusAnnotation("Active alerts", SOURCE, icon_color="red", expr=expression)


def _placed(board: Board) -> list[dashboard.Panel | dashboard.RowPanel]:
    panels: list[dashboard.Panel | dashboard.RowPanel] = []
    y = 0
    for section in board.sections:
        placed, y = _section(section, y)
        panels += placed
    return panels


def _section(section: Section, y: int) -> tuple[list[dashboard.Panel | dashboard.RowPanel], int]:
    """The row's header and its panels from left to right, and the first free line below them."""
    row = build.Row(section.title).id(section.id).grid_pos(dashboard.GridPos(h=1, w=COLUMNS, x=0, y=y))
    placed: list[dashboard.Panel | dashboard.RowPanel] = [
        (row.repeat(section.repeat) if section.repeat else row).build()
    ]
    x, y, line = 0, y + 1, 0
    for question in section.questions:
        if x + question.width > COLUMNS:
            x, y, line = 0, y + line, 0
        position = dashboard.GridPos(h=question.height, w=question.width, x=x, y=y)
        placed.append(panel(question, section.repeat == "run").grid_pos(position).build())
        x, line = x + question.width, max(line, question.height)
    return placed, y + line
