"""The sums of a batch, of its gaps and of its methods: which there are, and how they bound each other.

A mean lies between its extremes, a part is no more than its whole, a sum of squares is at least the square of the sum
over the count. Knows no tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from offpolicy_monitor.summary.batch import BATCH_SUMS, CROSS_SUMS
from offpolicy_monitor.summary.checks.faults import ROUNDING, UNDERFLOW, about_at_most, need
from offpolicy_monitor.summary.checks.forms import form, join
from offpolicy_monitor.summary.checks.structure import QUANTITIES
from offpolicy_monitor.summary.gap import DEVIATION, GAP_SUMS, GapSummary
from offpolicy_monitor.summary.method import METHOD_SUMS, MethodSummary
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.sums import Sums


@dataclass(frozen=True)
class Shard:
    """What is known of a shard beside its summary: its number, labels, policy version, ids, and what it may keep."""

    number: int
    labels: Mapping[str, str] = field(default_factory=dict)
    policy_version: int | None = None
    sequence_ids: tuple[str, ...] | None = None
    longest_id: int = 256
    longest_sequence: int = 1 << 31
    keep_worst: int = 0


_OPTIONAL: Final = (("lag_tokens", "lag", "lag_max"), ("entropy_tokens", "entropy"), ("reward_sequences", "reward"))
_FRACTIONS: Final = ("lag", "lag_max", "entropy", "reward")
BATCH: Final = form(
    counts=BATCH_SUMS.keys() - set(_FRACTIONS),
    numbers=_FRACTIONS,
    groups=_OPTIONAL,
    at_most=(
        ("empty_sequences", "sequences"),
        ("nonfinite_tokens", "tokens"),
        ("positive_tokens", "tokens"),
        ("exact_zero_tokens", "tokens"),
        ("zero_filled_tokens", "exact_zero_tokens"),
        ("lag_tokens", "tokens"),
        ("entropy_tokens", "tokens"),
        ("reward_sequences", "sequences"),
    ),
)
CROSS: Final = form(
    counts=("tokens",), numbers=("mismatch_staleness",), magnitudes=("mismatch_square", "staleness_square")
)
_GAP_COUNTS: Final = ("tokens", "sequences", "tail_tokens", "exact_tokens", "clamped_tokens")
_GAP_NUMBERS: Final = (
    "log_ratio", "log_ratio_min", "log_ratio_max", "ratio_excess", "weight_excess", "log_geometric",
    "log_geometric_min", "log_geometric_max", "geometric_excess", "log_product", "log_product_min", "log_product_max",
    "product_excess", "log_perplexity_numerator", "log_perplexity_denominator",
)  # fmt: skip
GAP: Final = form(
    counts=_GAP_COUNTS,
    numbers=_GAP_NUMBERS,
    magnitudes=GAP_SUMS.keys() - {*_GAP_COUNTS, *_GAP_NUMBERS},
    # Which older releases do not send.
    groups=((DEVIATION,),),
    at_most=(
        ("sequences", "tokens"),
        ("tail_tokens", "tokens"),
        ("exact_tokens", "tokens"),
        ("clamped_tokens", "tail_tokens"),
        ("probability_diff_max", "probability_diff"),
    ),
)
#: (count, sum, least, largest)
_MEANS: Final = (
    ("tokens", "log_ratio", "log_ratio_min", "log_ratio_max"),
    ("sequences", "log_geometric", "log_geometric_min", "log_geometric_max"),
    ("sequences", "log_product", "log_product_min", "log_product_max"),
)
#: (count, sum, sum of squares)
_SQUARES: Final = (
    ("tokens", "log_ratio_abs", "log_ratio_square"),
    ("tokens", "weight", "weight_square"),
    ("tokens", "probability_diff", "probability_diff_square"),
    ("tokens", "p", "p_square"),
    ("tokens", "q", "q_square"),
    ("sequences", "geometric", "geometric_square"),
    ("sequences", "product", "product_square"),
)
_METHOD_COUNTS: Final = ("masked_tokens", "masked_sequences", "touched_sequences")
_METHOD_WHOLE: Final = (
    "tokens", "sequences", "k3_kept", "k3_masked", "log_ratio_square_kept", "log_ratio_square_masked",
)  # fmt: skip
_SIDES: Final = ("masked_low_tokens", "masked_high_tokens")
_MASS: Final = ("advantage_mass", "masked_advantage_mass")
_WEIGHTS: Final = (
    "weight", "weight_square", "weight_excess", "weight_excess_square", "weight_max", "truncated_tokens",
)  # fmt: skip
METHOD: Final = form(
    counts=("tokens", "sequences", *_METHOD_COUNTS, *_SIDES, "truncated_tokens"),
    numbers=("weight_excess",),
    magnitudes=METHOD_SUMS.keys()
    - {"tokens", "sequences", *_METHOD_COUNTS, *_SIDES, "truncated_tokens", "weight_excess"},
    groups=(_METHOD_WHOLE, _SIDES, _MASS, _WEIGHTS),
    at_most=(
        ("masked_tokens", "tokens"),
        ("masked_low_tokens", "masked_tokens"),
        ("masked_high_tokens", "masked_tokens"),
        ("masked_sequences", "touched_sequences"),
        ("touched_sequences", "sequences"),
        ("touched_sequences", "masked_tokens"),
        ("masked_advantage_mass", "advantage_mass"),
        ("truncated_tokens", "tokens"),
    ),
)


def check_records(summary: StepSummary, shard: Shard) -> None:
    """Raise InvalidSummaryError where a sum is missing, of another kind, or cannot stand beside the others."""
    _check_batch(summary.batch, shard)
    for name, gap in summary.gaps.items():
        _check_gap(f"gaps.{name}", gap, summary.batch)
    for name, method in summary.methods.items():
        _check_method(join("methods", name), method, summary.gaps)
    if summary.cross:
        _check_cross(summary)


def _check_batch(batch: Sums, shard: Shard) -> None:
    BATCH.check("batch", batch)
    filled = batch["sequences"] - batch["empty_sequences"]
    need(filled <= batch["tokens"], "batch.tokens", "are fewer than the sequences that are not empty")
    need(bool(filled) == bool(batch["tokens"]), "batch.empty_sequences", "leave no sequence for the tokens")
    need("lag" not in batch or shard.policy_version is not None, "batch.lag", "needs a policy_version")
    ids = shard.sequence_ids
    need(ids is None or len(ids) == batch["sequences"], "batch.sequences", "are not as many as sequence_ids")


def _check_gap(path: str, gap: GapSummary, batch: Sums) -> None:
    sums = gap.sums
    if not sums:
        need(not gap.histograms, f"{path}.histograms", "count values of a gap without tokens")
        return
    GAP.check(f"{path}.sums", sums)
    need(sums["tokens"] > 0 and sums["sequences"] > 0, f"{path}.sums.tokens", "must not be 0 where there are sums")
    need(sums["tokens"] <= batch["tokens"], f"{path}.sums.tokens", "are more than those of the batch")
    filled = batch["sequences"] - batch["empty_sequences"]
    need(sums["sequences"] <= filled, f"{path}.sums.sequences", "are more than those of the batch that are not empty")
    _check_moments(f"{path}.sums", sums)
    for quantity in QUANTITIES:
        count = "tokens" if quantity == "log_ratio" else "sequences"
        total = gap.histogram(quantity).total
        need(total == sums[count], f"{path}.histograms.{quantity}", f"count {total} values of {sums[count]} {count}")


def _check_moments(path: str, sums: Sums) -> None:
    for count, total, least, largest in _MEANS:
        mean, scale = sums[total] / sums[count], max(abs(sums[least]), abs(sums[largest]))
        inside = about_at_most(sums[least], mean, scale) and about_at_most(mean, sums[largest], scale)
        need(inside, f"{path}.{total}", f"has its mean outside {least} and {largest}")
    for count, total, squares in _SQUARES:
        fewest = sums[total] * sums[total] / sums[count]
        enough = fewest <= sums[squares] * (1 + ROUNDING) + UNDERFLOW * sums[count]
        need(enough, f"{path}.{squares}", f"is less than {total} squared over {count}")
    if DEVIATION in sums:
        whole = sums["log_ratio_square"]
        rest = whole - sums["log_ratio"] * sums["log_ratio"] / sums["tokens"]
        near = abs(sums[DEVIATION] - rest) <= ROUNDING * whole + UNDERFLOW * sums["tokens"]
        need(near, f"{path}.{DEVIATION}", "is not what log_ratio and its square leave")
    for total, size in (("log_ratio", "log_ratio_abs"), ("log_geometric", "log_geometric_abs")):
        need(about_at_most(abs(sums[total]), sums[size]), f"{path}.{total}", f"is larger than {size}")


def _check_method(path: str, method: MethodSummary, gaps: Mapping[str, GapSummary]) -> None:
    METHOD.check(path, method.sums)
    of_gap = str((method.spec or {}).get("gap"))
    need(of_gap in gaps, path, "is put on a gap that is not there")
    for name in ("tokens", "sequences"):
        here, there = method.sums.get(name, 0), gaps[of_gap].sums.get(name, 0)
        need(here == there, f"{path}.{name}", f"are {here} where the gap {of_gap} has {there}")
    if not method.sums.get("tokens"):
        need(not any(method.sums.values()), path, "drops tokens of a gap that has none")


def _check_cross(summary: StepSummary) -> None:
    CROSS.check("cross", summary.cross)
    least = min(gap.sums.get("tokens", 0) for gap in summary.gaps.values())
    inside = len(summary.gaps) == 3 and 0 < summary.cross["tokens"] <= least
    need(inside, "cross.tokens", "must be valid for all three gaps")
    need(set(summary.cross) == set(CROSS_SUMS), "cross", "must have all of its sums")
    product = abs(summary.cross["mismatch_staleness"])
    bound = (summary.cross["mismatch_square"] + summary.cross["staleness_square"]) / 2
    need(about_at_most(product, bound), "cross.mismatch_staleness", "is larger than its squares allow")
