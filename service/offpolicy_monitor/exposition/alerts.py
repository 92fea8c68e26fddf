"""Which gauges of its alerts a run shows: a pure function of where its rules stand, bounded however many are breached.

What a rule counts is there for every severity that the run wants. The rest is there while it says something, worst
first: a run in which everything is wrong needs its worst alerts explained, and no more series than another.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

#: Most series of alerts per run; all that are breached are explained up to some 24 severities of 51.
MOST_SERIES: Final = 124

_STATES: Final = ("active", "pending", "quiet")
_SEVERITIES: Final = ("critical", "warning", "info")
_EXPLAINED: Final = ("value", "threshold")

State = Mapping[str, Any]
#: alert -> severity -> figures
Shown = dict[str, dict[str, dict[str, Any]]]


def shown(states: Iterable[State], own_terms: Collection[str], everything: bool = False) -> Shown:
    """The figures of each severity that the run wants and has the inputs of.

    `breach_steps` always; `active` (0 or 1) while it is breached; `root` (0 or 1) while it speaks for others; `value`
    and `threshold` while it is breached, and of rules in `own_terms` though they are quiet, as far as MOST_SERIES
    reaches. `everything`: all of them, without bound.
    """
    wanted = [state for state in states if "breach_steps" in state]
    breached = [state for state in wanted if everything or state["state"] != "quiet"]
    explained = [state for state in wanted if everything or state["state"] != "quiet" or state["alert"] in own_terms]
    roots = [{**state, "root": int(state["root"])} for state in wanted if "root" in state]
    if not everything:
        room = MOST_SERIES - len(wanted) - len(breached) - len(roots)
        explained = sorted(explained, key=_rank)[: max(0, room // len(_EXPLAINED))]
    found: Shown = {}
    _put(found, wanted, "breach_steps")
    _put(found, [{**state, "active": int(state["state"] == "active")} for state in breached], "active")
    _put(found, roots, "root")
    _put(found, explained, *_EXPLAINED)
    return found


def _put(found: Shown, states: Sequence[State], *names: str) -> None:
    for state in states:
        figures = found.setdefault(state["alert"], {}).setdefault(state["severity"], {})
        figures |= {name: state[name] for name in names if name in state}


def _rank(state: State) -> tuple[bool, int, int]:
    """Those that speak for others first, then the worst; among equals the rules keep their order."""
    return "root" not in state, _STATES.index(state["state"]), _SEVERITIES.index(state["severity"])
