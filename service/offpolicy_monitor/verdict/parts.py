"""Clauses that several cases share. Each is empty where what it would tell is not known."""

from offpolicy_monitor.verdict.facts import K3, LAGS, NOW, Facts, Masks
from offpolicy_monitor.verdict.numbers import number, percent, ratio


def against_start(facts: Facts, value: float, whose: str = "its own start") -> str:
    """`, 41× its own start`: mismatch k3 against the run's own baseline."""
    start = facts.start.median(K3["mismatch"])
    times = None if start is None else ratio(value, start)
    return "" if times is None else f", {times} {whose}"


def mismatch_now(facts: Facts, opening: str, whose: str = "its own start") -> str:
    """`Mismatch k3 is 0.0018 nats per token, 41× its own start.`"""
    now = facts.newest.median(K3["mismatch"], NOW)
    return "" if now is None else f"{opening} {number(now)} nats per token{against_start(facts, now, whose)}."


def lag_in_mismatch(facts: Facts) -> str:
    """How much of the mismatch may be version lag; empty where older weights make no difference, or nobody can tell.

    `70% of its tokens are of older weights: 0.003 on them, 2×10⁻⁴ on the others, so it has version lag in it.`
    """
    share, older, current = (
        facts.newest.median(f"mismatch_lag.{name}", NOW) for name in ("token_fraction", "k3", "k3_current")
    )
    if share is None or older is None or current is None or not older or older < LAGS * current:
        return ""
    there, here = number(older), number(current)
    what = f"{percent(share)} of its tokens are of older weights: {there} on them, {here} on the others"
    return f"{what}, so it has version lag in it."


def dropped(masks: Masks) -> str:
    """What the correction in use drops, what the standard method at its preset would, and where that drops 1 %."""
    found = []
    if masks.correction is not None and masks.dropped is not None:
        found.append(f"{masks.correction}, the correction in use, masks {percent(masks.dropped)} of the tokens.")
    if masks.standard_dropped is not None and masks.standard_threshold is not None:
        words = f"{masks.standard} at {number(masks.standard_threshold)} would mask {percent(masks.standard_dropped)}"
        more = "" if masks.one_percent is None else f"; at {number(masks.one_percent)} it masks 1%"
        found.append(f"{words}{more}.")
    return " ".join(found)


def joined(*parts: str) -> str:
    """Sentences one after the other, those that are not there left out."""
    return " ".join(part for part in parts if part)
