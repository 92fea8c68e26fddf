"""Names: what a figure is called in a logger: by its own path, and by the name that a framework has for it.

A framework's names are rows of the table of peers, and of these the ones that mean the same but for empty sequences and
the order of averages. Those of its own loss (staleness, its clip) stay the trainer's: it logs them itself, of the step
that it is at, and would be written over by ours of the step before.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from offpolicy_monitor import peers
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.vocabulary import VERDICTS

#: What stands before a path, and before what is no figure: the step, and the verdict as a number.
PREFIX: Final = peers.OURS
STEP: Final = f"{PREFIX}step"
VERDICT: Final = f"{PREFIX}verdict"
#: Where a row stands, which is no figure of it.
_PLACE: Final = frozenset({"step", "minibatch", "attempt", "received_shards", "shards"})
#: What the trainer's own steps move, and the rows that are put on it: clips of its loss.
_OF_THE_LOSS: Final = ("gaps.staleness.", *(f"methods.{row.name}." for row in PRESETS if row.gap == "staleness"))
_ALIKE: Final = ("same", "empty sequences", "an empty sequence", "mean of sequences")
#: A name with a part that stands for others: `rollout_rs_OPTION_masked_fraction`.
_OPEN: Final = re.compile("[A-Z]{3}")

#: path -> (name, sign) of each of a framework's names.
Names = Mapping[str, list[tuple[str, int]]]


def of_framework(framework: str | None) -> Names:
    """The names that a framework has for our figures. Raises ConfigurationError for one that is not in the table."""
    if framework is None:
        return {}
    known = {metric.peer.lower(): metric.peer for metric in peers.metrics()}
    if framework.lower() not in known:
        raise ConfigurationError(f"log_as: no names of {framework!r} are known, but of {', '.join(known.values())}")
    found: dict[str, list[tuple[str, int]]] = {}
    for metric in peers.metrics():
        if metric.peer == known[framework.lower()] and _is_ours(metric):
            found.setdefault(metric.path, []).append((metric.name, metric.sign))
    return found


def flat(row: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a step by their paths; texts, flags, lists and what is absent are left out."""
    return {path: value for path, value in _leaves("", row) if path not in _PLACE}


def named(figures: Mapping[str, float], verdict: str | None, names: Names) -> dict[str, float]:
    """Figures by what a logger calls them: by the framework's names where it has any, else by PREFIX and their path.

    The verdict stands among them as a number, for a plot, where there is one: its index among VERDICTS.
    """
    found: dict[str, float] = {}
    for path, value in figures.items():
        for name, sign in names.get(path, [(PREFIX + path, 1)]):
            found[name] = sign * value
    return {**found, VERDICT: float(VERDICTS.index(verdict))} if verdict in VERDICTS else found


def _is_ours(metric: peers.Metric) -> bool:
    of_tokens = metric.path.startswith(("gaps.", "methods.")) and not metric.path.startswith(_OF_THE_LOSS)
    return of_tokens and metric.same.startswith(_ALIKE) and _OPEN.search(metric.name) is None


def _leaves(before: str, node: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{before}{key}.", value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield before + key, value
