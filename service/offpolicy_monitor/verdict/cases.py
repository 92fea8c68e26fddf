"""What can be said of a run: one pure function for each case, from facts to words.

The state comes first, then since when, what it looks like, how much, and what to do. What is missing is named by its
field, and nothing is 0 that was not sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from offpolicy_monitor.verdict.facts import K3, NOW, Breach, Cause, Facts, onset
from offpolicy_monitor.verdict.numbers import clock, duration, number, percent, ratio
from offpolicy_monitor.verdict.parts import dropped, joined, lag_in_mismatch, mismatch_now
from offpolicy_monitor.vocabulary import Half

#: Training steps from which on a run is judged.
FIRST_JUDGED = 5
_COMPARE: Final = "Compare engine and trainer on one prompt."
_WITHOUT_LAG: Final = (
    "Look at mismatch_lag.k3_current, which has no lag in it, or keep old_logprobs of the weights that sampled."
)
Word = Literal[
    "healthy", "too_early", "drifting", "off_policy", "data_wrong", "alarm", "silent", "finished", "not_measured"
]


@dataclass(frozen=True)
class Words:
    """What is said: `state` as one word for machines, `head` and `why` in sentences, `action` in the imperative."""

    state: Word
    head: str
    why: str
    action: str
    since_step: int | None = None
    half: Half | Literal["data"] | None = None
    cause: Cause | None = None


def finished(facts: Facts) -> Words:
    """The run said that it is over."""
    end = "healthy to the end" if not facts.breaches else f"in alarm: {_names(facts.breaches)}"
    since = onset(facts.breaches) if facts.breaches else None
    return Words(
        "finished",
        f"Finished at step {facts.last_step}, {end}.",
        mismatch_now(facts, "Mismatch k3 ended at"),
        "Nothing. A further batch reopens the run.",
        since,
    )


def silent(facts: Facts) -> Words:
    """No batch for longer than the run's steps last, and it did not say that it is over."""
    usual = "" if facts.step_seconds is None else f"; this run's steps usually take {duration(facts.step_seconds)}"
    before = f"in alarm: {_names(facts.breaches)}" if facts.breaches else "healthy"
    return Words(
        "silent",
        f"No batch since step {facts.last_step}.",
        f"The last one came at {clock(facts.last_batch_at, facts.now)}{usual}. Until then it was {before}.",
        "See whether the trainer lives. If it ended, mark the run finished; if it trains, look at the client's errors "
        "and dropped counters.",
    )


def data_wrong(facts: Facts) -> Words:
    """Log-probs that are none, or not what they are said to be; no figure can be trusted before that is mended."""
    since, share = onset(facts.of("data")), _not_finite(facts)
    what = f"{percent(share)} of the tokens have log-probs that are not finite"
    known = mismatch_now(facts, "Among the rest, mismatch k3 is")
    return Words(
        "data_wrong",
        f"Data wrong since step {since}: {what if share else 'log-probs are missing, impossible or copied'}.",
        joined("They are left out of every figure.", known) if share else mismatch_now(facts, "Mismatch k3 is"),
        "Look at what the engine returns for one of these tokens before you trust any mask: NaN, 0 and copied values "
        "all pass through a clamp unseen.",
        since,
        "data",
    )


def too_early(facts: Facts) -> Words:
    """Fewer steps than rules look back on."""
    now = facts.newest.median(K3["mismatch"], NOW)
    steps = f"{facts.steps} step{'' if facts.steps == 1 else 's'}"
    return Words(
        "too_early",
        f"Too early to judge: {steps} so far.",
        joined(
            "Thresholds need 5 steps, drift needs a baseline from steps 5 to 25.",
            "" if now is None else f"Mismatch k3 so far: {number(now)} nats per token.",
        ),
        "Wait. Nothing is wrong with what came.",
    )


def mismatch(facts: Facts) -> Words:
    """The engine moved away from the trainer."""
    since, cause = onset(facts.of("mismatch") or facts.of("total")), facts.named
    looks = f"it looks like {cause.title} (score {number(cause.score)})" if cause else _no_cause(facts)
    lag = lag_in_mismatch(facts)
    tries = " ".join(cause.tries[:2]) if cause else joined(_WITHOUT_LAG if lag else "", _COMPARE)
    return Words(
        "drifting",
        f"Drifting since step {since}: {looks}.",
        joined(mismatch_now(facts, "Mismatch k3 is", "this run's own start"), lag, _share_of_mismatch(facts, since)),
        joined(tries, dropped(facts.masks)),
        since,
        "mismatch",
        cause,
    )


def staleness(facts: Facts) -> Words:
    """The policy moved away from the data it learns from."""
    rows = facts.of("staleness", "total")
    since = onset(rows)
    share = facts.newest.median("attribution.staleness", since=since)
    much = (
        "staleness is too large"
        if share is None
        else f"{'nearly all' if share > 0.995 else percent(share)} of the gap is staleness"
    )
    lag, now = facts.newest.last("policy_lag.max"), facts.newest.median(K3["staleness"], NOW)
    old = "" if lag is None else f", with data up to {lag:.0f} version{'' if lag == 1 else 's'} old"
    return Words(
        "drifting",
        f"Drifting since step {since}: {much}.",
        joined(
            "" if now is None else f"Staleness k3 is {number(now)} nats per token{old}.",
            mismatch_now(facts, "The engine is not to blame: mismatch k3 is"),
        ),
        joined(
            "Lower the learning rate, or take fewer gradient steps on one rollout, or shorten the queue.",
            dropped(facts.masks),
        ),
        since,
        "staleness",
    )


def off_policy(facts: Facts) -> Words:
    """Too far from the engine's policy, of which half nobody can tell without the trainer's recompute."""
    since, now = onset(facts.of("total", "staleness", "mismatch")), facts.newest.median(K3["total"], NOW)
    return Words(
        "off_policy",
        f"Off-policy since step {since}; which half cannot be told.",
        joined(
            "" if now is None else f"Total k3 is {number(now)} nats per token.",
            "Without old_logprobs, mismatch and staleness cannot be separated.",
        ),
        "Send old_logprobs: one forward pass of the trainer before the first gradient step.",
        since,
    )


def alarm(facts: Facts) -> Words:
    """Rules that look at neither half: masks, entropy, lengths, several signs together."""
    since = onset(facts.breaches)
    worst = min(facts.breaches, key=lambda breach: (breach.severity != "critical", breach.since_step, breach.alert))
    numbers = worst.value is not None and worst.threshold is not None
    return Words(
        "alarm",
        f"{worst.alert} since step {since}: {worst.summary[:1].lower()}{worst.summary[1:]}.",
        f"Value {number(worst.value or 0.0)}, threshold {number(worst.threshold or 0.0)}." if numbers else "",
        joined("See the runbook.", dropped(facts.masks)),
        since,
    )


def healthy(facts: Facts) -> Words:
    """Nothing is in breach, and both halves can be seen."""
    now = facts.newest.median(K3["mismatch"], NOW)
    below = None if now is None or not facts.threshold else ratio(facts.threshold, now)
    room = (
        f" Mismatch is {below} below its first threshold."
        if below and facts.threshold and now and now < facts.threshold
        else ""
    )
    share = facts.newest.median("attribution.staleness", NOW)
    learning = "" if share is None else f"{percent(share)} of the gap is staleness, which is the policy learning."
    return Words(
        "healthy",
        f"Healthy at step {facts.last_step}.{room}",
        joined(mismatch_now(facts, "Mismatch k3 is", "this run's own start"), lag_in_mismatch(facts), learning),
        joined("Nothing.", dropped(facts.masks)),
    )


def without_old(facts: Facts) -> Words:
    """Nothing is in breach; the two halves are seen as one."""
    unknown = "It cannot be split into mismatch and staleness."
    return _healthy_without("old_logprobs", facts, "total", unknown, "Send old_logprobs to learn which half it is.")


def without_sampling(facts: Facts) -> Words:
    """Nothing is in breach; the engine is not seen."""
    unknown = "Whether the engine agrees with the trainer is not known."
    action = "Send sampling_logprobs, as the engine returned them, to learn whether it agrees with the trainer."
    return _healthy_without("sampling_logprobs", facts, "staleness", unknown, action)


def _healthy_without(missing: str, facts: Facts, gap: str, unknown: str, action: str) -> Words:
    """All that is seen is the k3 of one gap."""
    now = facts.newest.median(K3[gap], NOW) or 0.0
    return Words(
        "healthy",
        f"Healthy at step {facts.last_step}, as far as can be told without {missing}.",
        f"{gap.capitalize()} k3 is {number(now)} nats per token. {unknown}",
        action,
    )


def not_measured(facts: Facts) -> Words:
    """Steps came, and no gap has a valid token."""
    return Words(
        "not_measured",
        f"Nothing measured at step {facts.last_step}: no token has two finite log-probs.",
        "Gaps are over tokens under the mask whose log-probs are all finite.",
        "Look at mask and log-probs of one batch.",
    )


def _names(breaches: Sequence[Breach]) -> str:
    """The rule that is in the worst breach, and how many others are."""
    worst = min(breaches, key=lambda breach: (breach.severity != "critical", breach.since_step, breach.alert))
    others = len({breach.alert for breach in breaches} - {worst.alert})
    more = "" if not others else f" and {others} other{'' if others == 1 else 's'}"
    return f"{worst.alert} since step {onset(breaches)}{more}"


def _no_cause(facts: Facts) -> str:
    known = ", and no known bug fits" if facts.searched else ""
    return f"the engine moved away from the trainer{known}"


def _not_finite(facts: Facts) -> float:
    """Of the newest step's tokens, the share that is not finite."""
    count, tokens = facts.newest.last("excluded_tokens.nonfinite"), facts.newest.last("tokens")
    return count / tokens if count and tokens else 0.0


def _share_of_mismatch(facts: Facts, since: int) -> str:
    """The mismatch's share of the gap since then; where the other half is larger, whether that has moved."""
    share = facts.newest.median("attribution.mismatch", since=since)
    other = facts.newest.median("attribution.staleness", since=since)
    if share is None or other is None:
        return ""
    if other <= 0.5:
        return f"It is {percent(share)} of the gap."
    now, before = facts.newest.median(K3["staleness"], since=since), facts.before.median(K3["staleness"])
    if now is None or not before:
        return f"It is {percent(share)} of the gap; the larger half is staleness ({percent(other)})."
    moved = f"rose {ratio(now, before)}" if now >= 2 * before else "has not moved"
    return f"It is {percent(share)} of the gap; the larger half, staleness ({percent(other)}), {moved}."
