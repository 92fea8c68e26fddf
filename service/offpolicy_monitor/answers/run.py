"""One run: its sentence and what to do, the figures of its newest step with how they went, and its open alerts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from offpolicy_monitor.answers.lists import alerts, figure
from offpolicy_monitor.answers.spark import bars, spark
from offpolicy_monitor.answers.style import LEVELS, SIGNS, Style, clean, level_of
from offpolicy_monitor.answers.table import Column, table
from offpolicy_monitor.verdict.numbers import percent
from offpolicy_monitor.vocabulary import STANDARD_METHOD

#: Most block characters of a figure, and points that are asked for.
SPARK: Final = 40
POINTS: Final = 400


@dataclass(frozen=True)
class Row:
    """A figure: its path, its name, its unit: nats, share, or none."""

    field: str
    name: str
    unit: str = ""


ROWS: Final = (
    Row("gaps.mismatch.k3", "mismatch k3", "nats"),
    Row("gaps.staleness.k3", "staleness k3", "nats"),
    Row("gaps.total.k3", "total k3", "nats"),
    Row("attribution.mismatch", "mismatch, of the gap", "share"),
    Row("noise_floor.attribution.engine_internal", "engine alone, of the mismatch", "share"),
    Row("gaps.mismatch.ess", "ESS of mismatch", "share"),
    Row("gaps.total.ess", "ESS of total", "share"),
    Row("policy_lag.max", "largest lag"),
    Row("entropy_mean", "entropy"),
    Row("sequence_length_mean", "tokens per sequence"),
    Row("reward_mean", "reward"),
)


def rows_of(about: Mapping[str, Any]) -> list[Row]:
    """The figures of a run: those of all, and what its correction masks."""
    names = [row["name"] for row in about["methods"]]
    method = about["correction"] or (STANDARD_METHOD if STANDARD_METHOD in names else None)
    path = f"methods.{method}.masked_token_fraction"
    return [*ROWS, *([Row(path, f"masked by {method}", "share")] if method else [])]


def sentence(said: Mapping[str, Any], style: Style) -> list[str]:
    """The verdict: its head, why, what to do."""
    level = level_of(said)
    first, *more = style.wrapped(f"{SIGNS[level]} {said['head']}")
    lines = [style.paint(line, "bold" if level == "healthy" else level) for line in (first, *more)]
    lines += style.wrapped(said["why"], "  ") if said["why"] else []
    return lines + (style.wrapped(f"Do: {said['action']}", "  ") if said.get("action") else [])


def run(
    about: Mapping[str, Any],
    said: Mapping[str, Any],
    series: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    style: Style,
) -> list[str]:
    """`about`, `said`, `series` and `found` as the API answers them: the run, its verdict, columns, its alerts."""
    labels = [f"{name} {value}" for name, value in about["labels"].items()]
    facts = [about["run"], about["profile"], *labels, f"{about['steps']} steps", about["state"]]
    facts += [f"corrected by {about['correction']}"] if about["correction"] else []
    lines = [*sentence(said, style), "", style.paint(_cut(clean(" · ".join(facts)), style.width), "quiet")]
    names = {row.field: row for row in rows_of(about)}
    shown = [(names[one["field"]], one["value"]) for one in series if any(value is not None for value in one["value"])]
    lines += ["", *_figures(shown, style)] if shown else ["No step is complete yet."]
    open_ones = _worst([row for row in found if row["state"] == "active"])
    return [*lines, "", *alerts(open_ones, style, of_one_run=True)] if open_ones else lines


def _worst(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One alert for each rule, of its worst severity."""
    ranked = sorted(found, key=lambda row: list(LEVELS).index(row["severity"]))
    return list({row["alert"]: row for row in ranked}.values())


def _figures(shown: Sequence[tuple[Row, Sequence[float | None]]], style: Style) -> list[str]:
    room = min(SPARK, max(8, style.width - 44))
    return table(
        [
            Column("figure", [row.name for row, _ in shown]),
            Column("now", [_written(row, values[-1]) for row, values in shown], right=True),
            Column("", [row.unit.replace("nats", "nats/token").replace("share", "") for row, _ in shown], optional=1),
            Column("over the steps", [_drawn(row, values, room) for row, values in shown]),
        ],
        style,
    )


def _written(row: Row, value: float | None) -> str:
    return percent(value) if row.unit == "share" and value is not None else figure(value)


def _drawn(row: Row, values: Sequence[float | None], room: int) -> str:
    return (spark if row.unit == "nats" else bars)(values, room)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
