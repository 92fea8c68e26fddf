"""The exact split of a second moment into two parts and their interaction: of the total gap, or of any other whole."""

from offpolicy_monitor.summary.sums import Sums


def attribution(cross: Sums) -> dict[str, float] | None:
    """The split E[total^2] = E[m^2] + E[s^2] + 2 E[m s] as three shares that sum to one.

    m is mismatch and s is staleness, over tokens valid for both. None where nothing is off-policy.
    """
    return split(cross, "mismatch", "staleness")


def split(sums: Sums, first: str, second: str) -> dict[str, float] | None:
    """The exact split E[(x + y)^2] = E[x^2] + E[y^2] + 2 E[x y] of a second moment as three shares that sum to one.

    The sums of x^2, y^2 and x y are `first_square`, `second_square` and `first_second`, over `tokens`. None where the
    whole is 0, so there is nothing to share out. Where x and y nearly cancel, shares are large and of both signs; the
    largest is what the other two leave, so that rounding never parts the three from one.
    """
    if not sums.get("tokens"):
        return None
    x, y, both = sums[f"{first}_square"], sums[f"{second}_square"], 2 * sums[f"{first}_{second}"]
    total = x + y + both
    if not total > 0:
        return None
    x, y, both = x / total, y / total, both / total
    if abs(x) >= abs(y) and abs(x) >= abs(both):
        x = 1 - (y + both)
    elif abs(y) >= abs(both):
        y = 1 - (x + both)
    else:
        both = 1 - (x + y)
    return {first: x, second: y, "interaction": both}
