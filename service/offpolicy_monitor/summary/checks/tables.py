"""The tables of a summary beside each other: what one needs of another, and what its numbers cannot be.

What rows say of themselves is checked before. A check is one kind's, in KINDS by the first part of its path.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import numpy as np

from offpolicy_monitor.summary.arrays import filled
from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.checks.faults import about_at_most, need, printable
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.summary.tables import density, noise_floor
from offpolicy_monitor.summary.tables.lengths import BINS_PER_POWER
from offpolicy_monitor.summary.tables.routing import PARTS, PREFIX

Check = Callable[[Facts, Sequence[str], str], None]

#: Of those that every gap with tokens has.
REQUIRED: Final = ("sequence/{gap}", "length/{gap}/sequences", "length/{gap}/tokens")
#: Tables that come together.
TOGETHER: Final = (("advantage/{gap}", "gradient/{gap}"),)


def check_tables(facts: Facts) -> None:
    """Raise InvalidSummaryError for a table that cannot stand beside the others."""
    for path in facts.arrays.scheme.paths:
        parts = path.split("/")
        check = KINDS.get(parts[0])
        if check is not None:
            check(facts, parts, printable(path))
    for gap in facts.summary.gaps:
        for name in REQUIRED if facts.count(gap) else ():
            need(name.format(gap=gap) in facts.arrays, name.format(gap=gap), "required")
        for one, other in TOGETHER:
            found = [name.format(gap=gap) in facts.arrays for name in (one, other)]
            need(found[0] == found[1], one.format(gap=gap), f"needs {other.format(gap=gap)}, and the other way round")
    for gap, path in ((table.needs, table.path) for table in density.TABLES):
        there = path in facts.arrays or path in facts.arrays.absent
        need(there or not facts.count(gap), path, "required")
    spans = facts.arrays.record("versions/spans")
    need(("lag" in spans) == ("versions/lag" in facts.arrays), "versions/spans", "has its lag without versions/lag")


def _of_gap(facts: Facts, parts: Sequence[str], path: str) -> None:
    facts.check_gap(parts[1], path)


def _breakdown(facts: Facts, parts: Sequence[str], path: str) -> None:
    sums = facts.arrays.columns(path)
    empty = sums["tokens"].reshape(-1) == 0
    need(not any(column.reshape(-1)[empty].any() for column in sums.values()), path, "has sums of no token")
    need(len(parts) == 3 or not empty.any(), f"{path}/tokens", "must not be 0")


def _versions(facts: Facts, parts: Sequence[str], path: str) -> None:
    spans = facts.arrays.record("versions/spans")
    need(bool(spans), path, "needs versions/spans")
    need(0 < spans["sequences"] <= facts.whole["sequences"], "versions/spans/sequences", "are not those of the batch")
    need("lag" not in spans or facts.shard.policy_version is not None, path, "needs a policy_version")


def _sequence(facts: Facts, parts: Sequence[str], path: str) -> None:
    facts.check_gap(parts[1], path)
    whole, found = facts.count(parts[1], "sequences"), facts.arrays.record(path)["sequences"]
    need(found == whole, f"{path}/sequences", "are not those of the gap")


def _advantage(facts: Facts, parts: Sequence[str], path: str) -> None:
    facts.check_gap(parts[1], path)
    whole = facts.count(parts[1])
    need(facts.arrays.record(path).get("tokens", whole) == whole, f"{path}/tokens", "are not those of the gap")


def _signature(facts: Facts, parts: Sequence[str], path: str) -> None:
    sums = facts.arrays.record(path)
    first = next(iter(sums))
    need(parts[1] == "grid" or sums[first] > 0, f"{path}/{first}", "must not be 0")


def _anchor(facts: Facts, parts: Sequence[str], path: str) -> None:
    need(facts.arrays.record(path)["tokens"] > 0, f"{path}/tokens", "must not be 0")


def _length(facts: Facts, parts: Sequence[str], path: str) -> None:
    _, gap, unit = parts
    facts.check_gap(gap, path)
    if unit == "sequences" or f"length/{gap}/sequences" not in facts.arrays:
        return
    sequences, tokens = (filled(facts.arrays[f"length/{gap}/{kind}"]) for kind in ("sequences", "tokens"))
    need(sequences.keys() == tokens.keys(), path, "has lengths of no sequence")
    for index, number in tokens.items():
        # A bin holds lengths from 2^(index / 4) on; rounding of the logarithm may move a length by one part in 10^6.
        least = sequences[index] * 2 ** (index / BINS_PER_POWER)
        most = least * 2 ** (1 / BINS_PER_POWER)
        near = math.floor(least * (1 - 1e-6)) <= number <= math.ceil(most * (1 + 1e-6))
        need(near, f"{path}.{index}", "does not fit the lengths of its sequences")


def _masked(facts: Facts, parts: Sequence[str], path: str) -> None:
    _, row, gap, unit = parts
    spec = facts.summary.specs[unquote(row)]
    need((spec or {}).get("gap") == gap, path, "is not of its row's gap")
    facts.check_gap(gap, path)
    units = facts.arrays[f"length/{gap}/{unit}"] if f"length/{gap}/{unit}" in facts.arrays else np.zeros(1)
    fits = bool((facts.arrays["/".join(parts)] <= units).all())
    need(fits, path, f"is more than all {unit} of a length")


def _routing(facts: Facts, parts: Sequence[str], path: str) -> None:
    _, gap, part, *shape = parts
    prefix = f"{PREFIX}/{gap}"
    found = [other for other in facts.arrays.under(f"{prefix}/counts")]
    need(len(found) == 1, path, "needs one table of counts")
    counts, (layers, k) = facts.arrays.record(found[0]), map(int, found[0].split("/")[-2:])
    if not shape:
        _check_divided(facts, gap, part, path)
        return
    need(shape == [str(layers), str(k)], path, "is no name of a table")
    whole = facts.count(gap) if gap in facts.summary.gaps else facts.whole["tokens"]
    need(0 < counts["tokens"] == whole, f"{path}/tokens", f"must be {whole}")
    few, many = counts["changed_tokens"], counts["changed_tokens"] * layers
    need(few <= counts["changed_layers"] <= many, f"{path}/changed_layers", f"must be from {few} to {many}")
    missing = facts.arrays.get(f"{prefix}/missing/{layers}/{k}")
    inside = missing is None or bool((missing <= counts["tokens"] * k).all())
    need(inside, path, "counts more experts than there are")


def _check_divided(facts: Facts, gap: str, part: str, path: str) -> None:
    facts.check_gap(gap, path)
    sums = facts.arrays.record(path)
    found = [facts.arrays.record(f"{PREFIX}/{gap}/{name}").get("tokens", 0) for name in PARTS]
    need(sum(found) == facts.count(gap), path, "does not divide the tokens of the gap")
    if part == "trend":
        need(bool(found[1]), path, "needs tokens whose routing changed")
        need(about_at_most(sums["layers"], sums["layers_square"]), path, "has a square less than its sum")
    else:
        need(sums["tokens"] > 0, f"{path}/tokens", "must not be 0")


def _noise_floor(facts: Facts, parts: Sequence[str], path: str) -> None:
    sums = facts.arrays.record(path)
    need(sums["tokens"] > 0, f"{path}/tokens", "must not be 0")
    if path == noise_floor.SPLIT:
        first, second = (sums[f"{part}_square"] for part in noise_floor.OF_MISMATCH)
        product = abs(sums["_".join(noise_floor.OF_MISMATCH)])
        need(about_at_most(product, (first + second) / 2), path, "has a product that is larger than its squares allow")
    elif path != noise_floor.BESIDE:
        _check_differences(sums, path)


def _support(facts: Facts, parts: Sequence[str], path: str) -> None:
    sums = facts.arrays.record(path)
    need(sums["tokens"] > 0, f"{path}/tokens", "must not be 0")
    _check_differences(sums, path)


def _check_differences(sums: Sums, path: str) -> None:
    total, square = sums["log_ratio_abs"], sums["log_ratio_square"]
    need(about_at_most(abs(sums["log_ratio"]), total), f"{path}/log_ratio", "is larger than log_ratio_abs")
    enough = about_at_most(total * total / sums["tokens"], square)
    need(enough, f"{path}/log_ratio_square", "is less than log_ratio_abs squared over tokens")


KINDS: Final[Mapping[str, Check]] = {
    "breakdown": _breakdown,
    "versions": _versions,
    "sequence": _sequence,
    "advantage": _advantage,
    "gradient": _of_gap,
    "signature": _signature,
    "anchor": _anchor,
    "length": _length,
    "masked": _masked,
    "routing": _routing,
    "whatif": _of_gap,
    "density": _of_gap,
    "noise_floor": _noise_floor,
    "support": _support,
}
