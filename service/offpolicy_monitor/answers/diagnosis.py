"""The diagnosis of a run: hypotheses, best first, with their evidence and what to try."""

from collections.abc import Mapping
from typing import Any, Final

from offpolicy_monitor.answers.style import Style, clean
from offpolicy_monitor.verdict.numbers import number
from offpolicy_monitor.vocabulary import BELIEVED

#: Block characters of a score of 1.
METER: Final = 10


def diagnosis(found: Mapping[str, Any], style: Style) -> list[str]:
    """What the service answers: a paragraph for each hypothesis."""
    if not found["steps"]:
        return ["No step is complete yet."]
    if not found["hypotheses"]:
        return ["Nothing to explain: no step has a mismatch to look at."]
    first, last = found["steps"]
    lines = [style.paint(f"Causes of the mismatch, steps {first} to {last}, best first:", "quiet")]
    for one in found["hypotheses"]:
        lines += ["", *_hypothesis(one, style)]
    return lines


def _hypothesis(one: Mapping[str, Any], style: Style) -> list[str]:
    is_believed = one["score"] >= BELIEVED
    full = round(one["score"] * METER)
    meter = "█" * full + "░" * (METER - full)
    believed = "" if is_believed else f", below {BELIEVED:g}: not believed"
    since = "" if one.get("since_step") is None else f", since step {one['since_step']}"
    title = f"{meter} {number(one['score'])}  {clean(one.get('title') or one['name'])}{since}{believed}"
    lines = [style.paint(line, "bold" if is_believed else "") for line in style.wrapped(title, hanging="  ")]
    lines += style.wrapped(one["summary"], "  ")
    for figure, value in one["evidence"].items():
        lines.append(f"    {clean(figure)} {clean(number(value, 3) if isinstance(value, int | float) else value)}")
    if is_believed:
        for advice in one["try"]:
            lines += style.wrapped(f"- {advice}", "  ")
    return lines
