"""The tables of a summary beside each other: what one needs of another, and what its numbers cannot be.

What rows say of themselves is checked before. A check is one kind's, in KINDS by the first part of its path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple
from urllib.parse import unquote

import numpy as np

from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.checks.faults import about_at_most, need, printable
from offpolicy_monitor.summary.checks.glance import Glance
from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.rows import name_of
from offpolicy_monitor.summary.scheme import COUNTS, MOST_WEIGHT, Scheme
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.summary.tables import density, noise_floor
from offpolicy_monitor.summary.tables.lengths import BINS, BINS_PER_POWER
from offpolicy_monitor.summary.tables.routing import PARTS, PREFIX

Check = Callable[[Facts, Sequence[str], str], None]
#: What is checked of the table of a path, and the parts of the path.
Looked = tuple[Check, Sequence[str]]
#: Says what a glance sees of a table; False where it cannot.
See = Callable[[Scheme, Glance[Looked], Looked], bool]

#: From which length on the sequences of a bin are, and to which.
_EDGES: Final = np.array([2 ** (index / BINS_PER_POWER) for index in range(BINS + 1)])

#: Of those that every gap with tokens has.
REQUIRED: Final = ("sequence/{gap}", "length/{gap}/sequences", "length/{gap}/tokens")
#: Tables that come together.
TOGETHER: Final = (("advantage/{gap}", "gradient/{gap}"),)


def check_tables(facts: Facts) -> None:
    """Raise InvalidSummaryError for a table that cannot stand beside the others."""
    for check, parts in doubtful(facts):
        check(facts, parts, printable("/".join(parts)))
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


class Seen(NamedTuple):
    """Tables of a scheme: what is checked of them, the gaps that must have tokens, rows with their gaps, the glance."""

    looked: Sequence[Looked]
    of_gaps: frozenset[str]
    of_rows: frozenset[tuple[str, str]]
    glance: Glance[Looked]


def doubtful(facts: Facts) -> Iterator[Looked]:
    """The tables to be looked at one by one: all where a gap is not what they need, else those that may be at fault."""
    scheme, summary = facts.arrays.scheme, facts.summary
    tokens = {gap for gap in summary.gaps if facts.count(gap) > 0}
    gaps = {(name, (spec or {}).get("gap")) for name, spec in summary.specs.items()}
    found = [seen(part) for part in dict.fromkeys((scheme.base, scheme))]
    if all(part.of_gaps <= tokens and part.of_rows <= gaps for part in found):
        return chain.from_iterable(part.glance.doubtful(facts.arrays) for part in found)
    return chain.from_iterable(part.looked for part in found)


@remembering(lambda made, scheme: scheme.weight, MOST_WEIGHT)
def seen(scheme: Scheme) -> Seen:
    """Of tables that the base lacks; of a base, of all of its tables."""
    paths = dict.fromkeys(scheme.tables[key].path for key in scheme.mine)
    looked = [(KINDS[parts[0]], parts) for path in paths if (parts := path.split("/"))[0] in KINDS]
    glance = Glance[Looked]()
    for one in looked:
        see = AT_ONCE.get(one[1][0])
        if see is None or not see(scheme, glance, one):
            glance.always(one)
    of_gaps = frozenset(parts[OF_GAPS[parts[0]]] for _, parts in looked if parts[0] in OF_GAPS)
    of_rows = frozenset((unquote(parts[1]), parts[2]) for _, parts in looked if parts[0] == "masked")
    return Seen(looked, of_gaps, of_rows, glance)


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
    sequences, tokens = (facts.arrays[f"length/{gap}/{kind}"] for kind in ("sequences", "tokens"))
    need(bool(((sequences != 0) == (tokens != 0)).all()), path, "has lengths of no sequence")
    # A bin holds lengths from 2^(index / 4) on; rounding of the logarithm may move a length by one part in 10^6.
    least, most = sequences * _EDGES[:-1], sequences * _EDGES[1:]
    near = (np.floor(least * (1 - 1e-6)) <= tokens) & (tokens <= np.ceil(most * (1 + 1e-6)))
    for index in np.flatnonzero(~near):
        need(False, f"{path}.{index}", "does not fit the lengths of its sequences")


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

#: Where the gap stands in the paths of tables of which the gap must have tokens.
OF_GAPS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("sequence", "advantage", "gradient", "length", "whatif", "density"), 1),
    "masked": 2,
}


def _alone(scheme: Scheme, glance: Glance[Looked], looked: Looked) -> bool:
    return True


def _as_many(unit: str) -> See:
    def see(scheme: Scheme, glance: Glance[Looked], looked: Looked) -> bool:
        _, (_, gap) = looked
        part, whole = (scheme.spans.get(f"{path}/{unit}") for path in ("/".join(looked[1]), f"gaps/{gap}"))
        if part is None or whole is None:
            return False
        glance.sum_of(looked, part, whole, equal=True)
        return True

    return see


def _not_empty(scheme: Scheme, glance: Glance[Looked], looked: Looked) -> bool:
    _, parts = looked
    first = scheme.paths["/".join(parts)][0]
    entry = scheme.spans.get(name_of(first.path, first.rows[0].name))
    if entry is None or entry.section != COUNTS or entry.shape:
        return False
    glance.positive(looked, entry)
    return True


def _see_signature(scheme: Scheme, glance: Glance[Looked], looked: Looked) -> bool:
    return looked[1][1] == "grid" or _not_empty(scheme, glance, looked)


def _see_breakdown(scheme: Scheme, glance: Glance[Looked], looked: Looked) -> bool:
    _, parts = looked
    if len(parts) > len(("breakdown", "dimension", "part")):
        return _not_empty(scheme, glance, looked)
    path = "/".join(parts)
    for row in (row for table in scheme.paths[path] for row in table.rows if row.name != "tokens"):
        glance.nothing_without(looked, scheme.spans[f"{path}/tokens"], scheme.spans[name_of(path, row.name)])
    return True


def _see_masked(scheme: Scheme, glance: Glance[Looked], looked: Looked) -> bool:
    _, parts = looked
    whole = scheme.spans.get(f"length/{parts[2]}/{parts[3]}")
    if whole is None:
        return False
    glance.each_of(looked, scheme.spans["/".join(parts)], whole)
    return True


#: What is seen at once of kinds of tables whose gaps have tokens; the others are looked at one by one.
AT_ONCE: Final[Mapping[str, See]] = {
    **dict.fromkeys(("gradient", "whatif", "density"), _alone),
    "sequence": _as_many("sequences"),
    "advantage": _as_many("tokens"),
    "anchor": _not_empty,
    "signature": _see_signature,
    "breakdown": _see_breakdown,
    "masked": _see_masked,
}
