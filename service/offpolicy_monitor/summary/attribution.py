"""The exact split of total off-policyness into mismatch, staleness and interaction, from second moments."""

from offpolicy_monitor.summary.sums import Sums


def attribution(cross: Sums) -> dict[str, float] | None:
    """The exact second-moment split E[total^2] = E[m^2] + E[s^2] + 2 E[m s] as three shares that sum to one.

    m is mismatch and s is staleness, over tokens valid for both. None where nothing is off-policy, so there is nothing
    to share out. Where mismatch and staleness nearly cancel, shares are large and of both signs; the largest is what
    the other two leave, so that rounding never parts the three from one.
    """
    if not cross.get("tokens"):
        return None
    parts = {
        "mismatch": cross["mismatch_square"],
        "staleness": cross["staleness_square"],
        "interaction": 2 * cross["mismatch_staleness"],
    }
    total = sum(parts.values())
    if not total > 0:
        return None
    shares = {name: part / total for name, part in parts.items()}
    largest = max(shares, key=lambda name: abs(shares[name]))
    return {**shares, largest: 1 - sum(share for name, share in shares.items() if name != largest)}
