"""What an alert that speaks for others says to whoever is woken by it: all that is needed to act on it, in one text."""

from collections.abc import Sequence
from typing import Final

from offpolicy_monitor.verdict.parts import joined
from offpolicy_monitor.verdict.say import Said

#: Rules that are named of those it speaks for.
NAMED: Final = 4


def of_root(said: Said, message: str, evidence: Sequence[str], page: str) -> str:
    """The advice, since when and of what cause with its score, the figure, what to change, what goes with it, where.

    said      of the breaches that it speaks for
    message   what its rule says of itself
    evidence  the rules of the others
    """
    words = said.words
    # Where no half is at fault there is no more to say than what the rule does.
    head = "" if words.state == "alarm" and message else words.head
    return joined(
        f"Verdict: {said.verdict}.",
        head,
        message or words.why,
        f"Do: {words.action}",
        f"With it: {_listed(evidence)}." if evidence else "",
        page,
    )


def _listed(names: Sequence[str]) -> str:
    """`A, B, C, D and 3 others`."""
    more = len(names) - NAMED
    others = f" and {more} other{'' if more == 1 else 's'}" if more > 0 else ""
    return ", ".join(names[:NAMED]) + others
