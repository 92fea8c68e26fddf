"""What a correction would keep out of the loss at other thresholds, and the setting to paste."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.answers.listing import figure
from offpolicy_monitor.answers.style import Style, clean
from offpolicy_monitor.answers.table import Column, table
from offpolicy_monitor.verdict.numbers import number, percent

SHARES: Final = {
    "masked_token_fraction": "tokens",
    "masked_sequence_fraction": "sequences",
    "masked_advantage_mass": "advantage mass",
}
#: Thresholds that are shown of a curve, besides those of rows and the one under trial.
SHOWN: Final = 8
#: Frameworks whose setting is shown; one without an option for it is named so.
FRAMEWORKS: Final = ("verl", "TRL", "prime-rl", "slime")
#: Digits of a threshold: 0.999 and 1.001 are two.
DIGITS: Final = 5


def curve_of(answer: Mapping[str, Any], bound: str) -> Mapping[str, Any]:
    """The curve of a bound: the answer itself where the rule has one."""
    return answer if "threshold" in answer else answer[bound]


def bounds(answer: Mapping[str, Any]) -> list[str]:
    """What thresholds of the rule are called: one, or those of its two sides."""
    return [answer["parameter"]] if "threshold" in answer else [one for one in ("lower", "upper") if answer.get(one)]


def own_threshold(answer: Mapping[str, Any], bound: str, row: str | None) -> float | None:
    """That of the row, else of any row of the kind, else the middle of the curve; None where it is empty."""
    found = {one["name"]: one["threshold"] for one in answer["presets"] if one["parameter"] == bound}
    edges = curve_of(answer, bound)["threshold"]
    middle = edges[len(edges) // 2] if edges else None
    own: float | None = found.get(row, next(iter(found.values()), middle))
    return own


def whatif(answer: Mapping[str, Any], at: Mapping[str, Any], bound: str, style: Style) -> list[str]:
    """`answer`: the curve at its own edges; `at`: the same at one threshold."""
    if not answer["steps"]:
        return ["No step is complete yet."]
    tried = curve_of(at, bound)
    lines = [style.paint(line, "bold") for line in style.wrapped(_sentence(answer, tried, bound))]
    lines += ["", *_rows(answer, tried, bound, style), "", style.paint("the setting", "quiet")]
    for framework in FRAMEWORKS:
        lines += _setting(framework, tried["config"])
    return lines


def _sentence(answer: Mapping[str, Any], tried: Mapping[str, Any], bound: str) -> str:
    share = tried["masked_token_fraction"][0]
    what = f"{answer['method']} at {answer['gap']}, {answer['level']}, {bound} {number(tried['threshold'][0], DIGITS)}"
    kept = "has nothing to look at" if share is None else f"would act on {percent(share)} of the tokens"
    error = tried["error"][0]
    within = f" (± {percent(error)})" if share is not None and error else ""
    first, last = answer["steps"]
    read, there = answer["steps_read"], answer["steps_in_range"]
    of = f"{read} of {there} steps" if read < there else f"{read} step{'' if read == 1 else 's'}"
    return f"{what} {kept}{within} of steps {first} to {last} ({of})."


def _rows(answer: Mapping[str, Any], tried: Mapping[str, Any], bound: str, style: Style) -> list[str]:
    """Few rows of the curve, by threshold."""
    curve, presets = curve_of(answer, bound), _presets(answer, bound)
    edges: Sequence[float] = curve["threshold"]
    spread = {(len(edges) - 1) * index // (SHOWN - 1) for index in range(SHOWN)} if edges else set()
    spread |= {index for index, edge in enumerate(edges) if edge in presets}
    chosen = {edges[index]: (curve, index) for index in spread} | {tried["threshold"][0]: (tried, 0)}
    order = sorted(chosen)
    picked = [chosen[threshold] for threshold in order]
    marks = [", ".join(presets.get(threshold, ())) for threshold in order]
    colours = ["bold" if threshold == tried["threshold"][0] else "" for threshold in order]
    columns = [
        Column("", ["›" if colour else "" for colour in colours], colours=colours),
        Column(bound, [number(threshold, DIGITS) for threshold in order], right=True, colours=colours),
        *(
            Column(words, [_share(one[key][index]) for one, index in picked], right=True, colours=colours)
            for key, words in SHARES.items()
        ),
        Column("±", [_share(one["error"][index]) for one, index in picked], right=True, optional=2),
        Column("rows that run there", marks, cut=12, optional=1),
    ]
    return table(columns, style)


def _presets(answer: Mapping[str, Any], bound: str) -> dict[float, list[str]]:
    found: dict[float, list[str]] = {}
    for one in answer["presets"]:
        if one["parameter"] == bound:
            found.setdefault(one["threshold"], []).append(one["name"])
    return found


def _share(value: float | None) -> str:
    return figure(None) if value is None else percent(value)


def _setting(framework: str, config: Sequence[Mapping[str, Any]]) -> list[str]:
    found = next((one for one in config if one["framework"] == framework), None)
    if found is None:
        return [f"  {framework:<9} has no option for it"]
    first, *more = map(clean, found["lines"])
    lines = [f"  {framework:<9} {first}", *(f"  {'':<9} {line}" for line in more)]
    return lines + ([f"  {'':<9} ({clean(found['differs'])})"] if found["differs"] else [])
