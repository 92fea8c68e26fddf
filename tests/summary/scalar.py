"""Figures of a summary one number at a time, by plain arithmetic: what formulas over arrays must give to the bit.

An oracle: nothing here is shared with what it checks but the numbers that are kept, attribution, routing, calibration,
the noise floor and the support.
"""

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.attribution import attribution
from offpolicy_monitor.summary.histogram import LARGEST_KEY, bin_edges
from offpolicy_monitor.summary.method import DROP_COUNTS, path_of
from offpolicy_monitor.summary.tables.advantage import GRADIENT_BINS, middle
from offpolicy_monitor.summary.tables.calibration import calibration
from offpolicy_monitor.summary.tables.lengths import BINS_PER_POWER
from offpolicy_monitor.summary.tables.noise_floor import noise_floor
from offpolicy_monitor.summary.tables.routing import routing
from offpolicy_monitor.summary.tables.support import support
from offpolicy_monitor.vocabulary import QUANTILES

Sums = Mapping[str, float]


def figures(summary: StepSummary) -> dict[str, Any]:
    """Every figure of a step that is not read off a table of DETAILS; None for what JSON cannot hold."""
    arrays, batch = summary.arrays, summary.arrays.record("batch")
    extras = _length_biases(arrays)
    for path in arrays.under("anchor"):
        sums = arrays.record(path)
        of_row = extras.setdefault(unquote(path.split("/")[1]), {})
        of_row["anchor_disagreement"] = _fraction(sums["differing"], sums["tokens"])
    methods = {
        name: {**_method(spec, arrays.record(path_of(name))), **extras.get(name, {})}
        for name, spec in summary.specs.items()
        if spec is not None
    }
    whole = ("tokens", "sequences", "empty_sequences")
    found, calibrated, floor = routing(arrays), calibration(arrays), noise_floor(arrays)
    return _finite(
        {
            **{name: int(batch.get(name, 0)) for name in whole},
            "excluded_tokens": {"nonfinite": int(batch.get("nonfinite_tokens", 0))},
            "suspect_tokens": {
                "positive": int(batch.get("positive_tokens", 0)),
                "exact_zero": int(batch.get("exact_zero_tokens", 0)),
            },
            "zero_filled_tokens": batch.get("zero_filled_tokens", None if batch else 0),
            "gaps": {path.removeprefix("gaps/"): _gap(arrays, path) for path in arrays.under("gaps")},
            "methods": methods,
            "attribution": attribution(arrays.record("cross")),
            **_means(batch),
            **_longest(summary.arrays),
            **({"routing": found} if found else {}),
            **({"calibration": calibrated} if calibrated else {}),
            **({"noise_floor": floor} if floor else {}),
            **({"mismatch_lag": lag} if (lag := _mismatch_lag(arrays)) else {}),
            **({"support": on_support} if (on_support := support(arrays)) else {}),
        }
    )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fraction(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _means(batch: Sums) -> dict[str, Any]:
    filled = batch.get("sequences", 0) - batch.get("empty_sequences", 0)
    found: dict[str, Any] = {"sequence_length_mean": _fraction(batch.get("tokens", 0), filled)}
    if batch.get("lag_tokens"):
        found["policy_lag"] = {"mean": batch["lag"] / batch["lag_tokens"], "max": batch["lag_max"]}
    if batch.get("entropy_tokens"):
        found["entropy_mean"] = batch["entropy"] / batch["entropy_tokens"]
    if batch.get("reward_sequences"):
        found["reward_mean"] = batch["reward"] / batch["reward_sequences"]
    return {name: value for name, value in found.items() if value is not None}


def _mismatch_lag(arrays: Arrays) -> dict[str, Any]:
    """Of buckets of lag: negative, 0, 1, and so on."""
    if "breakdown/lag/mismatch" not in arrays:
        return {}
    sums = arrays.columns("breakdown/lag/mismatch")
    tokens, k3 = sums["tokens"].tolist(), sums["k3"].tolist()
    older, all_of_them = sum(tokens[2:]), sum(tokens)
    if not older:
        return {}
    found = {"tokens": older, "token_fraction": older / all_of_them, "k3": sum(k3[2:]) / older}
    current = all_of_them - older
    return found | ({"k3_current": sum(k3[:2]) / current} if current else {})


def _longest(arrays: Arrays) -> dict[str, Any]:
    found = {int(length): int(number) for length, number in zip(*arrays.at("longest/at"), strict=True)}
    sequences = arrays.record("longest").get("sequences")
    return {"sequence_length_max": max(found), "longest_fraction": found[max(found)] / sequences} if sequences else {}


def _gap(arrays: Arrays, path: str) -> dict[str, Any]:
    sums, name = arrays.record(path), path.removeprefix("gaps/")
    if not sums.get("tokens"):
        return {"tokens": 0, "sequences": 0, "clamped_tokens": 0, "sequence": {}}
    ends = sums["log_ratio_min"], sums["log_ratio_max"]
    of_sequences = sums["log_geometric_min"], sums["log_geometric_max"]
    found: dict[str, Any] = {
        "tokens": int(sums["tokens"]),
        "sequences": int(sums["sequences"]),
        **_token_means(sums),
        **_token_spread(sums),
        **_probability_figures(sums),
        "quantiles": _quantiles(arrays, f"histograms/{name}/log_ratio", *ends),
    }
    sequence = {
        **_sequence_figures(sums),
        "quantiles": _quantiles(arrays, f"histograms/{name}/log_geometric_ratio", *of_sequences),
        **_sequence_extras(arrays.record(f"sequence/{name}")),
    }
    return {**found, **_gap_extras(arrays, name, found["k3"]), "sequence": sequence}


def _gap_extras(arrays: Arrays, gap: str, k3: float) -> dict[str, Any]:
    found: dict[str, Any] = {"length_budget": 0.6 / k3 if k3 else None}
    sums = arrays.record(f"advantage/{gap}")
    if sums:
        found["advantage_weighted_excess"] = _fraction(sums["advantage_excess"], sums["advantage_abs"])
        found["advantage_second_moment"] = _fraction(sums["mass_square"], sums["advantage_square"])
        found["gradient_mass_top1"] = _top_share(arrays[f"gradient/{gap}"].tolist())
        if "bad" in sums:
            found["bad_update_fraction"] = _fraction(sums["bad"], sums["tokens"])
            found["outward_second_moment"] = _fraction(sums["outward_square"], sums["outward"] or 1)
    return found


def _sequence_extras(sums: Sums) -> dict[str, Any]:
    if not sums:
        return {}
    found = {
        "cancellation": _fraction(sums["cancelled"], sums["moving"]),
        "vanishing_fraction": _fraction(sums["vanishing"], sums["sequences"]),
    }
    if "extreme" in sums:
        found["extreme_fraction"] = _fraction(sums["extreme"], sums["sequences"])
    return found


def _top_share(counts: list[int]) -> float | None:
    whole, filled = 0.0, [key for key in range(GRADIENT_BINS) if counts[key]]
    for key in filled:
        whole += counts[key] * middle(key)
    if not whole > 0:
        return None
    held, left = 0.0, 0.01 * sum(counts)
    for key in reversed(filled):
        taken = min(left, counts[key])
        held += taken * middle(key)
        left -= taken
        if left <= 0:
            break
    return held / whole


def _method(spec: Mapping[str, Any], sums: Sums) -> dict[str, Any]:
    if not sums.get("tokens"):
        sums = {key: sums[key] for key in DROP_COUNTS if key in sums}
    counts = {name: int(sums.get(name, 0)) for name in ("tokens", "sequences")}
    counts |= {name: int(sums[name]) for name in DROP_COUNTS if name in sums}
    if not counts["tokens"]:
        return {**spec, **counts}
    found: dict[str, Any] = {
        "masked_token_fraction": sums["masked_tokens"] / sums["tokens"],
        "masked_sequence_fraction": _fraction(sums["masked_sequences"], sums["sequences"]),
    }
    if "advantage_mass" in sums:
        found["masked_advantage_mass"] = _fraction(sums["masked_advantage_mass"], sums["advantage_mass"])
    if "weight" in sums:
        _, ess, std = _ratio_spread(sums, "weight", sums["tokens"])
        found |= {
            "weight_mean": _ratio_mean(sums, "weight", sums["tokens"]),
            "weight_std": std,
            "weight_max": sums["weight_max"],
            "weight_ess": ess,
            "truncated_token_fraction": sums["truncated_tokens"] / sums["tokens"],
        }
    masked, kept = sums["masked_tokens"], sums["tokens"] - sums["masked_tokens"]
    square_kept, square_masked = sums["log_ratio_square_kept"], sums["log_ratio_square_masked"]
    found |= {
        "k3_kept": _fraction(sums["k3_kept"], kept),
        "k3_masked": _fraction(sums["k3_masked"], masked),
        "k2_kept": _fraction(square_kept, 2 * kept),
    }
    tau = spec.get("kl_tau")
    if tau is not None:
        found["kl_term_kept"] = _fraction(tau * square_kept, kept)
        found["kl_term_all"] = tau * (square_kept + square_masked) / sums["tokens"]
    return {**spec, **counts, **found}


def _bounded_exp(x: float) -> float:
    """exp(clip(x, +-80))."""
    return math.exp(max(-80.0, min(80.0, x)))


def _variance(total: float, total_square: float, count: float) -> float:
    """Population variance from sums; rounding cannot make it negative."""
    average = total / count
    spread = total_square / count - average * average
    return spread if not spread < 0 else 0.0


def _ratio_mean(sums: Sums, name: str, count: float) -> float:
    """Mean of a ratio x from its sums `name` (of x) and `name_excess` (of x - 1).

    Sums of x - 1 keep their digits where a healthy run lives, close to 1; sums of x keep theirs far below it.
    """
    direct = sums[name] / count
    return 1 + sums[f"{name}_excess"] / count if direct > 0.5 else direct


def _ratio_spread(sums: Sums, name: str, count: float) -> tuple[float, float, float]:
    """chi2 = mean(x^2) - 1, ESS = mean(x)^2 / mean(x^2) and the standard deviation of a ratio x, from its sums."""
    mean = _ratio_mean(sums, name, count)
    if mean > 0.5:
        excess, square = sums[f"{name}_excess"], sums[f"{name}_excess_square"]
        chi2 = (square + 2 * excess) / count
        return chi2, mean * mean / (1 + chi2), math.sqrt(_variance(excess, square, count))
    second = sums[f"{name}_square"] / count
    ess = mean * mean / second if second > 0 else math.nan
    return second - 1, ess, math.sqrt(_variance(sums[name], sums[f"{name}_square"], count))


def _token_means(sums: Sums) -> dict[str, Any]:
    count = sums["tokens"]
    chi2, ess, _ = _ratio_spread(sums, "weight", count)
    return {
        "k1": -sums["log_ratio"] / count,
        "k2": sums["log_ratio_square"] / (2 * count),
        "k3": sums["k3"] / count,
        "k3_reverse": sums["k3_reverse"] / count,
        "js": sums["js"] / count,
        "log_ratio_mean": sums["log_ratio"] / count,
        "abs_log_ratio_mean": sums["log_ratio_abs"] / count,
        "ratio_mean": _ratio_mean(sums, "ratio", count),
        "multiplicative_error": 1 + sums["multiplicative_excess"] / count,
        "tail_fraction": sums["tail_tokens"] / count,
        "exact_fraction": sums["exact_tokens"] / count,
        "chi2": chi2,
        "ess": ess,
    }


def _token_spread(sums: Sums) -> dict[str, Any]:
    lowest, highest = sums["log_ratio_min"], sums["log_ratio_max"]
    return {
        "log_ratio_std": math.sqrt(_log_ratio_variance(sums)),
        "log_ratio_min": lowest,
        "log_ratio_max": highest,
        "abs_log_ratio_max": max(-lowest, highest),
        "ratio_min": _bounded_exp(lowest),
        "ratio_max": _bounded_exp(highest),
        "clamped_tokens": int(sums["clamped_tokens"]),
    }


def _log_ratio_variance(sums: Sums) -> float:
    """Of a summary without the deviation, which older releases did not keep, from the sums of d and d^2."""
    if "log_ratio_deviation" in sums:
        return sums["log_ratio_deviation"] / sums["tokens"]
    return _variance(sums["log_ratio"], sums["log_ratio_square"], sums["tokens"])


def _probability_figures(sums: Sums) -> dict[str, Any]:
    count = sums["tokens"]
    spread = _variance(sums["probability_diff"], sums["probability_diff_square"], count)
    return {
        "probability_diff_mean": sums["probability_diff"] / count,
        "probability_diff_max": sums["probability_diff_max"],
        "probability_diff_std": math.sqrt(spread),
        "probability_correlation": _correlation(sums),
    }


def _correlation(sums: Sums) -> float | None:
    """Pearson correlation of p and q; None where one of them does not vary beyond rounding."""
    count, p, q, pp, pq, qq = (sums[name] for name in ("tokens", "p", "q", "p_square", "p_q", "q_square"))
    xx, xy, yy = pp - p * p / count, pq - p * q / count, qq - q * q / count
    if not (xx > 1e-14 * pp and yy > 1e-14 * qq):
        return None
    return max(-1.0, min(1.0, xy / math.sqrt(xx) / math.sqrt(yy)))


def _sequence_figures(sums: Sums) -> dict[str, Any]:
    count = sums["sequences"]
    chi2, ess, _ = _ratio_spread(sums, "product", count)
    chi2_geometric, _, geometric_std = _ratio_spread(sums, "geometric", count)
    return {
        "k1": -sums["log_geometric"] / count,
        "k3": sums["sequence_k3"] / count,
        "abs_log_ratio_mean": sums["sequence_log_ratio_abs"] / count,
        "geometric_ratio_mean": _ratio_mean(sums, "geometric", count),
        "geometric_ratio_min": _bounded_exp(sums["log_geometric_min"]),
        "geometric_ratio_max": _bounded_exp(sums["log_geometric_max"]),
        "geometric_ratio_std": geometric_std,
        "log_geometric_ratio_mean": sums["log_geometric"] / count,
        "log_geometric_ratio_abs_mean": sums["log_geometric_abs"] / count,
        "log_geometric_ratio_min": sums["log_geometric_min"],
        "log_geometric_ratio_max": sums["log_geometric_max"],
        "log_product_ratio_mean": sums["log_product"] / count,
        "log_product_ratio_min": sums["log_product_min"],
        "log_product_ratio_max": sums["log_product_max"],
        "chi2": chi2,
        "ess": ess,
        "chi2_geometric": chi2_geometric,
        "perplexity_numerator": sums["perplexity_numerator"] / count,
        "perplexity_denominator": sums["perplexity_denominator"] / count,
        "log_perplexity_numerator": sums["log_perplexity_numerator"] / count,
        "log_perplexity_denominator": sums["log_perplexity_denominator"] / count,
        "perplexity_ratio": sums["inverse_geometric"] / count,
    }


def _quantiles(arrays: Arrays, name: str, lowest: float, highest: float) -> dict[str, float]:
    counts = arrays[name].sum(0)
    bins = np.repeat(np.arange(len(counts)), counts).tolist()
    total, found = len(bins), {}
    for fraction in QUANTILES:
        rank = fraction * (total - 1)
        below, above = math.floor(rank), math.ceil(rank)
        low, high = (_order_statistic(bins, index, lowest, highest) for index in (below, above))
        found[str(fraction)] = low + (high - low) * (rank - below)
    return found


def _order_statistic(bins: list[int], rank: int, lowest: float, highest: float) -> float:
    if rank == 0:
        return lowest
    if rank == len(bins) - 1:
        return highest
    bin_ = bins[rank]
    if bin_ // 2 == LARGEST_KEY:
        return 0.0
    lower, upper = (float(edges[bin_]) for edges in bin_edges())
    inside = (rank - (bins.index(bin_) - 1)) / (bins.count(bin_) + 1)
    low, high = max(lower, lowest), min(upper, highest)
    return low + (high - low) * inside


def _length_biases(arrays: Arrays) -> dict[str, dict[str, Any]]:
    found = {}
    for path in arrays.under("masked"):
        _, row, gap, unit = path.split("/")
        if f"length/{gap}/tokens" not in arrays:
            continue
        whole = int(arrays[f"length/{gap}/tokens"].sum())
        if arrays.record(path_of(unquote(row))).get("tokens") == whole:
            units, sequences = arrays[f"length/{gap}/{unit}"], arrays[f"length/{gap}/sequences"]
            bias = _length_bias(units.tolist(), sequences.tolist(), arrays[path].tolist())
            found[unquote(row)] = {"length_bias": {"unit": unit, **bias}}
    return found


def _length_bias(units: list[int], sequences: list[int], masked: list[int]) -> dict[str, Any]:
    bins = [index for index, number in enumerate(units) if number]
    ranks, before = {}, 0
    for index in bins:
        ranks[index] = before + units[index] - (units[index] - 1) / 2
        before += units[index]
    logs = {index: (index + 0.5) / BINS_PER_POWER for index in bins}
    share = sum(masked) / before
    xx, xy = _moments(units, ranks, masked, share)
    log_xx, log_xy = _moments(units, logs, masked, share)
    yy = before * share * (1 - share)
    low, high = (_quarter(units, sequences, masked, order) for order in (bins, bins[::-1]))
    return {
        "spearman": max(-1.0, min(1.0, xy / math.sqrt(xx) / math.sqrt(yy))) if xx > 0 and yy > 0 else None,
        "slope": log_xy / log_xx if log_xx > 0 else None,
        "shortest": low,
        "longest": high,
        "ratio": high / low if low else None,
        "difference": high - low,
    }


def _moments(units: list[int], values: dict[int, float], masked: list[int], share: float) -> tuple[float, float]:
    mean = math.fsum(units[index] * value for index, value in values.items()) / sum(units)
    xx = math.fsum(units[index] * (value - mean) ** 2 for index, value in values.items())
    xy = math.fsum((masked[index] - units[index] * share) * (value - mean) for index, value in values.items())
    return xx, xy


def _quarter(units: list[int], sequences: list[int], masked: list[int], order: list[int]) -> float:
    left, counted, dropped = 0.25 * sum(sequences), 0.0, 0.0
    for index in order:
        part = max(0.0, min(left, sequences[index])) / sequences[index] if sequences[index] else 0.0
        left -= sequences[index]
        counted += units[index] * part
        dropped += masked[index] * part
    return dropped / counted if counted else 0.0
