"""Marks of a wrong way to post: each says in a sentence with figures what it has found, or nothing."""

from collections.abc import Mapping
from typing import Any, Final

from offpolicy_monitor.doctor.posted import Posted

#: Tokens, and steps, below which nothing is said: what few have in common is chance.
FEWEST_TOKENS, FEWEST_STEPS = 30, 4
#: Times the k3 of the other shards from which one disagrees.
DISAGREES: Final = 10.0
#: Times the k3 of tokens that the newest weights sampled from which that of the others has version lag in it.
LAGS: Final = 2.0
#: Figures that no two shards of different tokens share.
_OF_SHARDS: Final = ("tokens", "k3", "abs_log_ratio_max")


def no_old(posted: Posted) -> str | None:
    """The total gap alone."""
    if not posted.has("total") or posted.has("mismatch") or posted.has("staleness"):
        return None
    return "sampling_logprobs and logprobs arrive, and no old_logprobs: engine and training cannot be told apart"


def no_sampling(posted: Posted) -> str | None:
    """Staleness alone."""
    if not posted.has("staleness") or posted.has("mismatch"):
        return None
    return "old_logprobs and logprobs arrive, and no sampling_logprobs: the engine is not looked at"


def no_current(posted: Posted) -> str | None:
    """Mismatch alone."""
    if not posted.has("mismatch") or posted.has("staleness"):
        return None
    return "sampling_logprobs and old_logprobs arrive, and no logprobs: how far training moves is not looked at"


def old_is_sampling(posted: Posted) -> str | None:
    """pi_old is mu, bit for bit."""
    tokens = posted.figure("gaps.mismatch.tokens")
    if posted.bitwise or not tokens >= FEWEST_TOKENS or posted.figure("gaps.mismatch.exact_fraction") != 1:
        return None
    return f"old_logprobs equal sampling_logprobs to the bit in all of {tokens:,.0f} tokens: no trainer recomputes so"


def old_is_current(posted: Posted) -> str | None:
    """pi_old is pi, bit for bit, after gradient steps that must have moved it."""
    several = any(number > 1 for number in posted.steps.values())
    tokens = posted.figure("gaps.staleness.tokens")
    if not several or not tokens >= FEWEST_TOKENS or posted.figure("gaps.staleness.exact_fraction") != 1:
        return None
    return f"logprobs equal old_logprobs to the bit in all of {tokens:,.0f} tokens of the last gradient steps"


def one_of_many(posted: Posted) -> str | None:
    """Each step has one shard of those it says it has."""
    if not _lack(posted) or any(arrival.received > 1 for arrival in posted.awaited):
        return None
    return f"one shard of {posted.incomplete[-1].shards} has come of every step: a single process posts"


def never_complete(posted: Posted) -> str | None:
    """Half of the steps and more lack a shard."""
    if not _lack(posted) or one_of_many(posted) is not None:
        return None
    last = posted.incomplete[-1]
    return (
        f"{len(posted.incomplete)} of {len(posted.awaited)} gradient steps lack a shard; step {last.step} has"
        f" {last.received} of {last.shards}"
    )


def jumping(posted: Posted) -> str | None:
    """Half of the steps and more do not follow the one before."""
    if len(posted.steps) <= FEWEST_STEPS or 2 * len(posted.jumps) < len(posted.steps) - 1:
        return None
    before, after = posted.jumps[-1]
    return f"{len(posted.jumps)} of {len(posted.steps) - 1} steps do not follow the one before: {before}, then {after}"


def same_tokens(posted: Posted) -> str | None:
    """Two shards whose figures are one and the same."""
    seen: dict[tuple[Any, ...], str] = {}
    for name, of_shard in _mapping(_mapping(posted.figures, "breakdowns"), "shard").items():
        for gap, figures in _mapping(of_shard, "gaps").items():
            mark = (gap, *(figures.get(figure) for figure in _OF_SHARDS))
            if not figures.get("tokens", 0) >= FEWEST_TOKENS or not figures.get("k3"):
                continue
            if mark in seen:
                return f"shards {seen[mark]} and {name} hold the same {mark[1]:,} tokens: each is counted twice"
            seen[mark] = name
    return None


def shard_apart(posted: Posted) -> str | None:
    """One shard has far more mismatch than the others."""
    ratio, about = posted.figure("outliers.mismatch.ratio"), _mapping(_mapping(posted.figures, "outliers"), "mismatch")
    if about.get("dimension") != "shard" or not ratio >= DISAGREES:
        return None
    return f"shard {about['bucket']} has {ratio:.0f} times the mismatch of the others"


def lagged_mismatch(posted: Posted) -> str | None:
    """Tokens that older weights sampled have far more mismatch than the others."""
    older, current = posted.figure("mismatch_lag.k3"), posted.figure("mismatch_lag.k3_current")
    if not posted.figure("mismatch_lag.tokens") >= FEWEST_TOKENS or not older or not older >= LAGS * current:
        return None
    share = posted.figure("mismatch_lag.token_fraction")
    return (
        f"{share:.0%} of the mismatch's tokens are of older weights, with a k3 of {older:.2g} and {current:.2g} on the"
        " others: how far the policy went in between is in the mismatch"
    )


def no_advantages(posted: Posted) -> str | None:
    """No gap has a figure that advantages make."""
    gaps = _mapping(posted.figures, "gaps")
    if not gaps or any("advantage_second_moment" in figures for figures in gaps.values()):
        return None
    return "no advantages arrive: corrections by their sign, and what pushes outward, cannot be told"


def no_version(posted: Posted) -> str | None:
    """No step has a policy version."""
    if not posted.arrivals or any(arrival.policy_version is not None for arrival in posted.arrivals):
        return None
    return "no policy_version arrives: nothing tells an engine on old weights by its version"


def no_versions(posted: Posted) -> str | None:
    """The policy's own version without those that sampled."""
    if not posted.figures or no_version(posted) is not None or posted.figure("policy_lag.max") >= 0:
        return None
    return (
        "policy_version arrives, and no policy_versions, those that sampled: there is no lag, and StaleData is silent"
    )


def versions_of_steps(posted: Posted) -> str | None:
    """The version goes on by the same number beyond one from each step to the next."""
    rises = posted.rises
    if len(rises) < FEWEST_STEPS or len(set(rises)) > 1 or rises[0] <= 1:
        return None
    return f"policy_version goes on by {rises[0]} from each step to the next: it seems to count optimizer steps"


def _lack(posted: Posted) -> bool:
    """Whether half of the gradient steps that are through lack a shard."""
    return len(posted.awaited) >= FEWEST_STEPS and 2 * len(posted.incomplete) >= len(posted.awaited)


def _mapping(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return of.get(name) or {}
