"""What a correction would keep out of the loss at other thresholds, and the setting to paste."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.answers.lists import figure
from offpolicy_monitor.answers.style import Style, clean
from offpolicy_monitor.answers.table import Column, table
from offpolicy_monitor.answers.trial import Trial
from offpolicy_monitor.verdict.numbers import number, percent

SHARES: Final = {
    "masked_token_fraction": "tokens",
    "masked_sequence_fraction": "sequences",
    "masked_advantage_mass": "advantage mass",
}
#: Thresholds that are shown of a curve, besides those of rows and the one under trial.
SHOWN: Final = 8
#: Digits of a threshold: 0.999 and 1.001 are two.
DIGITS: Final = 5
#: Where lines of a setting begin, after the name of its framework.
INDENT: Final = " " * 12


def whatif(trials: Sequence[Trial], style: Style) -> list[str]:
    """One method, or several: first what each drops at its threshold, side by side, then each by itself."""
    if not any(tried.curve["steps"] for tried in trials):
        return ["No step is complete yet."]
    if len(trials) == 1:
        return _alone(trials[0], style)
    compared = [tried for tried in trials if tried.at is not None]
    lines = _side_by_side(compared, style) if len(compared) > 1 else []
    for tried in trials:
        lines += [*([""] if lines else []), *_alone(tried, style)]
    return lines


def _alone(trial: Trial, style: Style) -> list[str]:
    if trial.at is None:
        return [f"No step of this run has what {trial.curve['method']} looks at."]
    lines = [style.paint(line, "bold") for line in style.wrapped(_sentence(trial))]
    lines += ["", *_rows(trial, style), "", style.paint("the setting", "quiet")]
    for found in trial.tried["config"]:
        lines += _setting(found, style)
    return lines + [f"  {framework:<9} has no option for it" for framework in trial.tried["no_option"]]


def _side_by_side(trials: Sequence[Trial], style: Style) -> list[str]:
    """A row for each method at its threshold."""
    columns = [
        Column("method", [trial.curve["method"] for trial in trials]),
        Column("gap", [trial.curve["gap"] for trial in trials], optional=3),
        Column("level", [trial.curve["level"] for trial in trials], optional=4),
        Column("threshold", [f"{trial.bound} {number(trial.tried['threshold'][0], DIGITS)}" for trial in trials]),
        *_shares([(trial.tried, 0) for trial in trials]),
    ]
    return table(columns, style)


def _sentence(trial: Trial) -> str:
    answer, tried = trial.curve, trial.tried
    share = tried["masked_token_fraction"][0]
    threshold = number(tried["threshold"][0], DIGITS)
    what = f"{answer['method']} at {answer['gap']}, {answer['level']}, {trial.bound} {threshold}"
    kept = "has nothing to look at" if share is None else f"would act on {percent(share)} of the tokens"
    error = tried["error"][0]
    within = f" (± {percent(error)})" if share is not None and error else ""
    first, last = answer["steps"]
    read, there = answer["steps_read"], answer["steps_in_range"]
    of = f"{read} of {there} steps" if read < there else f"{read} step{'' if read == 1 else 's'}"
    return f"{what} {kept}{within} of steps {first} to {last} ({of})."


def _rows(trial: Trial, style: Style) -> list[str]:
    """Few rows of the curve, by threshold."""
    curve, tried = trial.shares, trial.tried
    edges: Sequence[float] = curve["threshold"]
    spread = {(len(edges) - 1) * index // (SHOWN - 1) for index in range(SHOWN)} if edges else set()
    spread |= {index for index, edge in enumerate(edges) if edge in trial.presets}
    chosen = {edges[index]: (curve, index) for index in spread} | {tried["threshold"][0]: (tried, 0)}
    order = sorted(chosen)
    marks = [", ".join(trial.presets.get(threshold, ())) for threshold in order]
    colours = ["bold" if threshold == tried["threshold"][0] else "" for threshold in order]
    columns = [
        Column("", ["›" if colour else "" for colour in colours], colours=colours),
        Column(trial.bound, [number(threshold, DIGITS) for threshold in order], right=True, colours=colours),
        *_shares([chosen[threshold] for threshold in order], colours),
        Column("rows that run there", marks, cut=12, optional=1),
    ]
    return table(columns, style)


def _shares(found: Sequence[tuple[Mapping[str, Any], int]], colours: Sequence[str] = ()) -> list[Column]:
    """What is dropped, and the most by which that is off; `found`: curves, and the index of a threshold in each."""
    return [
        *(
            Column(words, [_share(one[key][index]) for one, index in found], right=True, colours=colours)
            for key, words in SHARES.items()
        ),
        Column("±", [_share(one["error"][index]) for one, index in found], right=True, optional=2),
    ]


def _share(value: float | None) -> str:
    return figure(None) if value is None else percent(value)


def _setting(found: Mapping[str, Any], style: Style) -> list[str]:
    """Lines to paste are left whole; what is said of them is wrapped."""
    first, *more = map(clean, found["lines"])
    lines = [f"  {found['framework']:<9} {first}", *(f"{INDENT}{line}" for line in more)]
    return lines + (style.wrapped(f"({found['differs']})", INDENT) if found["differs"] else [])
