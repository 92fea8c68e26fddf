"""What is wrong with the way a run is posted: findings, warnings first, each with the line to change."""

from collections.abc import Mapping
from typing import Any

from offpolicy_monitor.answers.style import LEVELS, SIGNS, Style


def findings(answer: Mapping[str, Any], style: Style) -> list[str]:
    """What the service answers: a paragraph for each finding."""
    if not answer["steps"]:
        return ["No step has come yet."]
    first, last = answer["steps"]
    if not answer["findings"]:
        return [style.paint(f"{SIGNS['healthy']} Steps {first} to {last} are posted as they should be.", "healthy")]
    lines = [style.paint(f"How steps {first} to {last} are posted:", "quiet")]
    for one in answer["findings"]:
        level = LEVELS[one["severity"]] if one["severity"] != "info" else "unknown"
        title = style.wrapped(f"{SIGNS[level]} {one['title']}", hanging="  ")
        lines += ["", *(style.paint(line, level if level == "warn" else "bold") for line in title)]
        lines += style.wrapped(one["summary"], "  ")
        lines += style.wrapped(f"Change: {one['change']}", "  ", "    ")
    return lines
