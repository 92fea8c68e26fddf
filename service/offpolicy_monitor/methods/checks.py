"""What methods ask of their parameters beside their ranges: RowError, or the parameters as they are to be."""

from offpolicy_monitor.methods.model import Parameters, RowError, Sent


def bounds(sent: Sent) -> Parameters:
    """lower, upper or both, and not the one above the other."""
    lower, upper = sent.parameters["lower"], sent.parameters["upper"]
    if lower is None and upper is None:
        raise RowError("upper", f"method {sent.row['method']} needs lower, upper or both")
    if lower is not None and upper is not None and lower > upper:
        raise RowError("lower", f"is above upper ({lower} > {upper})")
    return sent.parameters


def budget(sent: Sent) -> Parameters:
    """The least budget is no more than the most."""
    least, most = sent.parameters["budget"], sent.parameters["budget_max"]
    if most is not None and least > most:
        raise RowError("budget", f"is above budget_max ({least} > {most})")
    return sent.parameters


def mask(sent: Sent) -> Parameters:
    """Ratios are never negative, and `reduce` means something for k-statistics of whole sequences alone."""
    parameters = bounds(sent)
    if parameters["statistic"] == "ratio":
        for key in ("lower", "upper"):
            if (parameters[key] or 0.0) < 0:
                raise RowError(key, f"a bound on a ratio must not be negative; got {parameters[key]}")
    reducible = parameters["statistic"] != "ratio" and sent.level != "token"
    if "reduce" in sent.row and not (reducible and (sent.level == "sequence" or sent.row["reduce"] == "mean")):
        raise RowError("reduce", "goes with statistic k1, k2 or k3 at level sequence")
    return parameters if reducible else {**parameters, "reduce": None}
