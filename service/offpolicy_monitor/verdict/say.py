"""Chooses what is said of a run: the first case that fits, in the order in which a reader must know of them."""

from dataclasses import dataclass
from typing import Any

from offpolicy_monitor.verdict import cases
from offpolicy_monitor.verdict.cases import FIRST_JUDGED, Words
from offpolicy_monitor.verdict.facts import K3, Facts


@dataclass(frozen=True)
class Said:
    """Words with the verdict, in the shape of the answer."""

    verdict: str
    words: Words

    def answer(self) -> dict[str, Any]:
        """`cause` and `score` are null where no cause is named."""
        words, cause = self.words, self.words.cause
        return {
            "verdict": self.verdict,
            "state": words.state,
            "sentence": f"{words.head} {words.why}".rstrip(),
            "head": words.head,
            "why": words.why,
            "since_step": words.since_step,
            "half": words.half,
            "cause": None if cause is None else cause.name,
            "score": None if cause is None else cause.score,
            "action": words.action,
        }


def say(verdict: str, facts: Facts) -> Said:
    """What is said of a run; `verdict` is accept, warn or skip."""
    return Said(verdict, _words(facts))


def _words(facts: Facts) -> Words:
    if facts.state == "finished":
        return cases.finished(facts)
    if facts.state == "silent":
        return cases.silent(facts)
    if facts.of("data") and not _explains_the_data(facts):
        return cases.data_wrong(facts)
    if not facts.breaches:
        return _nothing_in_breach(facts)
    if facts.of("mismatch"):
        return cases.off_policy(facts) if _stands_for_both(facts) else cases.mismatch(facts)
    if facts.of("staleness", "total"):
        return _away_from_the_data(facts)
    return cases.alarm(facts)


def _explains_the_data(facts: Facts) -> bool:
    """A nucleus of one token has log mu = 0, which DataQuality takes for zero-filled: a named cause says more.

    Where none was looked for, there may be one.
    """
    explained = bool(facts.of("mismatch")) and (facts.named is not None or not facts.searched)
    return explained and not facts.newest.last("excluded_tokens.nonfinite")


def _stands_for_both(facts: Facts) -> bool:
    """Rules on the mismatch look at the total gap where a run sends no old_logprobs: only a named cause says more."""
    return facts.named is None and facts.newest.median(K3["mismatch"]) is None


def _nothing_in_breach(facts: Facts) -> Words:
    if facts.steps < FIRST_JUDGED:
        return cases.too_early(facts)
    known = [gap for gap, path in K3.items() if facts.newest.median(path) is not None]
    if "mismatch" in known:
        return cases.healthy(facts)
    return (
        cases.without_old(facts)
        if "total" in known
        else cases.without_sampling(facts)
        if known
        else cases.not_measured(facts)
    )


def _away_from_the_data(facts: Facts) -> Words:
    """Of the total gap the half is at fault that has the larger share; without the trainer's recompute none can be."""
    staleness = facts.newest.median("attribution.staleness")
    mismatch = facts.newest.median("attribution.mismatch")
    if staleness is None or mismatch is None:
        return cases.staleness(facts) if facts.newest.median(K3["staleness"]) is not None else cases.off_policy(facts)
    return cases.staleness(facts) if staleness >= mismatch or facts.of("staleness") else cases.mismatch(facts)
