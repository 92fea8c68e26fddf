"""The states of a run's rules as JSON, as they are kept and answered.

Most rules are at rest, and say the same at every step but for their value. The text of such a rule is made once, in the
pieces that its value stands between.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from offpolicy_monitor.alerts.engine import Judged, states_of
from offpolicy_monitor.alerts.episodes import Episode, Key
from offpolicy_monitor.alerts.judge import shown


def all_shown(judged: Iterable[Judged], active: Mapping[Key, Episode], roots: Mapping[Key, bool]) -> orjson.Fragment:
    """A list of every state of rules as judge.shown has it."""
    texts, standing = list[bytes](), {alert for alert, _ in active}
    for one in judged:
        outlook, value, states = one
        if states is not None or (standing and outlook.plan.rule.name in standing):
            texts += [orjson.dumps(shown(state, active, roots)) for state in states_of(one)]
            continue
        pieces = outlook.pieces
        if not pieces:
            pieces += _pieces([shown(state) for state in states_of(one)])
        texts.append(orjson.dumps(value).join(pieces))
    return orjson.Fragment(b"[%b]" % b",".join(texts))


def _pieces(states: Iterable[dict[str, Any]]) -> list[bytes]:
    """The text of a rule's states, cut where their value stands; one piece where they have none."""
    blank = [state | {"value": None} if "value" in state else state for state in states]
    return b",".join(map(orjson.dumps, blank)).split(b"null")
