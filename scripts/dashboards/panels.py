"""From a question to a panel of the SDK: the queries, thresholds, links and axes that all kinds share, and each kind.

Knows Grafana's panel types and nothing of what is asked. Thresholds in force are queried, since a run's profile and
overrides move them; fixed lines are field thresholds.
"""

import string
from collections.abc import Callable, Mapping
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, heatmap, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as choices
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_choices
from grafana_foundation_sdk.models import prometheus as language

from scripts.dashboards.in_force import in_force
from scripts.dashboards.model import Line, Query, Question
from scripts.dashboards.tables import table

SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
DASHES = {"dash": [6, 6], "fill": "dash"}
SEVERITIES = {"warning": "orange", "critical": "red"}


def panel(question: Question, of_run: bool = False) -> Any:
    """The builder of the question's panel, without a position on the grid; `of_run` where it is of one run alone."""
    builder = KINDS[question.kind](question)
    builder.id(question.id).title(question.title).description(question.description).datasource(SOURCE)
    builder.unit(question.unit).links(links(question, of_run)).targets(targets(question))
    if question.minimum is not None:
        builder.min(question.minimum)
    if question.maximum is not None:
        builder.max(question.maximum)
    return builder


def targets(question: Question) -> list[Any]:
    """The queries as the SDK's, named A, B, C and so on; those of the thresholds come last."""
    rows = list(question.queries)
    if question.drawn:
        rows.append(Query(in_force(question.alert), question.alert + " {{severity}}"))
    return [_target(row, question, letter) for row, letter in zip(rows, string.ascii_uppercase, strict=False)]


def _target(query: Query, question: Question, letter: str) -> Any:
    target = prometheus.Dataquery().expr(query.expression).ref_id(letter).datasource(SOURCE)
    target.editor_mode(language.QueryEditorMode.CODE).legend_format(query.legend or "__auto")
    if question.kind == "table":
        return target.instant().format(language.PromQueryFormat.TABLE)
    if question.kind in ("stat", "bargauge"):
        return target.instant()
    if question.kind == "heatmap":
        return target.range().format(language.PromQueryFormat.HEATMAP)
    return target.range()


def links(question: Question, of_run: bool) -> list[Any]:
    """To the runbook's section of the rule, where the panel has one, and to the live page, that of the run if any."""
    anchor = f"#{question.alert}" if question.alert else ""
    title = f"What to do: {question.alert}" if question.alert else "Runbook"
    pages = {
        title: "${service_url}/runbook" + anchor,
        "Live page": "${service_url}/runs/${run}" if of_run else "${service_url}/",
    }
    kind = dashboard.DashboardLinkType.LINK
    return [build.DashboardLink(name).type(kind).url(url).target_blank(True) for name, url in pages.items()]


def thresholds(lines: tuple[Line, ...], base: str) -> Any:
    """The field's thresholds: `base` below the first line, from there on each line's colour."""
    steps = [dashboard.Threshold(None, base), *(dashboard.Threshold(line.value, line.colour) for line in lines)]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _timeseries(question: Question) -> Any:
    panel = timeseries.Panel().line_width(1).fill_opacity(0).show_points(choices.VisibilityMode.NEVER)
    panel.legend(_legend()).tooltip(_tooltip()).thresholds(thresholds(question.lines, question.base))
    if question.log:
        logarithmic = common.ScaleDistributionConfig().type(choices.ScaleDistribution.LOG).log(10)
        panel.scale_distribution(logarithmic)
    if question.stacked:
        panel.stacking(common.StackingConfig().mode(choices.StackingMode.NORMAL).group("A")).fill_opacity(40)
    if question.lines:
        style = common.GraphThresholdsStyleConfig().mode(choices.GraphThresholdsStyleMode.DASHED)
        panel.thresholds_style(style)
    if question.drawn:
        for severity, colour in SEVERITIES.items():
            panel.override_by_regexp(f"/^{question.alert} {severity}$/", _drawn_line(colour))
    return panel


def _drawn_line(colour: str) -> list[dashboard.DynamicConfigValue]:
    values: Mapping[str, object] = {
        "color": {"mode": "fixed", "fixedColor": colour},
        "custom.lineStyle": DASHES,
        "custom.fillOpacity": 0,
        "custom.stacking": {"mode": "none", "group": "A"},
    }
    return [dashboard.DynamicConfigValue(name, value) for name, value in values.items()]


def _stat(question: Question) -> Any:
    panel = stat.Panel().graph_mode(choices.BigValueGraphMode.NONE).reduce_options(_last())
    panel.color_mode(choices.BigValueColorMode.VALUE).thresholds(thresholds(question.lines, question.base))
    if question.queries[0].legend:
        panel.text_mode(choices.BigValueTextMode.VALUE_AND_NAME)
    return panel


def _bars(question: Question) -> Any:
    panel = bargauge.Panel().orientation(choices.VizOrientation.HORIZONTAL).reduce_options(_last())
    panel.display_mode(choices.BarGaugeDisplayMode.BASIC).sizing(choices.BarGaugeSizing.AUTO)
    return panel.thresholds(thresholds(question.lines, question.base))


def _heatmap(question: Question) -> Any:
    colours = heatmap.HeatmapColorOptions().mode(heatmap_choices.HeatmapColorMode.SCHEME).scheme("Blues").steps(64)
    colours.exponent(0.5).fill("blue").reverse(False)
    axis = heatmap.YAxisConfig().unit(question.unit).axis_placement(choices.AxisPlacement.LEFT)
    hidden = common.HideSeriesConfig().legend(False).tooltip(False).viz(False)
    return heatmap.Panel().calculate(False).color(colours).y_axis(axis).hide_from(hidden)


def _states(question: Question) -> Any:
    texts = {
        str(value): dashboard.ValueMappingResult(text=text, color=colour, index=value)
        for value, (text, colour) in (question.names or {}).items()
    }
    panel = statetimeline.Panel().mappings([dashboard.ValueMap(texts)]).legend(_legend()).tooltip(_tooltip())
    panel.show_value(choices.VisibilityMode.NEVER).row_height(0.8).merge_values(True).fill_opacity(80)
    return panel.color_scheme(build.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))


def _legend() -> Any:
    legend = common.VizLegendOptions().display_mode(choices.LegendDisplayMode.LIST).show_legend(True)
    return legend.placement(choices.LegendPlacement.BOTTOM).calcs([])


def _tooltip() -> Any:
    order = choices.SortOrder.DESCENDING
    return common.VizTooltipOptions().mode(choices.TooltipDisplayMode.MULTI).sort(order)


def _last() -> Any:
    return common.ReduceDataOptions().values(False).calcs(["lastNotNull"]).fields("")


KINDS: Mapping[str, Callable[[Question], Any]] = {
    "timeseries": _timeseries,
    "stat": _stat,
    "table": table,
    "bargauge": _bars,
    "heatmap": _heatmap,
    "statetimeline": _states,
}
