"""Routing figures: how far two policies of a mixture-of-experts model choose the same experts, by gap.

Read off tables `routing/<gap>/...`, which `tables_of_gap` makes. Shards may differ in layers and k: their tables stand
apart, and every figure is a mean over the tokens of all of them. It knows no expert ids and no log-probs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offpolicy_monitor.pairs import of_sums
from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.faults import need
from offpolicy_monitor.summary.figure import Figure, gauge, under
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.sums import Sums, over
from offpolicy_monitor.vocabulary import EXPERT_IDS, GAP_LOGPROBS, LOGPROBS

if TYPE_CHECKING:
    from offpolicy_monitor.summary.checks.facts import Facts
    from offpolicy_monitor.summary.checks.names import Beside

PREFIX: Final = "routing"
#: gap -> (experts of its numerator policy, experts of its denominator policy)
EXPERTS: Final[Mapping[str, tuple[str, str]]] = {
    gap: (EXPERT_IDS[LOGPROBS.index(above)], EXPERT_IDS[LOGPROBS.index(below)])
    for gap, (above, below) in GAP_LOGPROBS.items()
}
#: Parts of a gap's tokens: those whose routing agrees in every layer, and those with a layer in which it does not.
PARTS: Final = ("agreeing", "changed")
#: Sums over a part's tokens: k3, d^2, |d| and its square root.
PART_KEYS: Final = ("k3", "square", "size", "root")
#: What part of a sum of squares its spread must be to be more than rounding: |d| is summed in float32.
ROUNDED: Final = 1e-6

TABLES: Final = (
    schema.Table(
        "routing/{gap}/counts/{layers}/{k}",
        (
            schema.count("tokens", "tokens of the gap"),
            schema.count("changed_tokens", "tokens with a layer whose sets of experts differ", at_most="tokens"),
            schema.count("changed_layers", "such layers"),
        ),
        "how often the experts of two policies differ",
        needs=(schema.EXPERTS_OF_GAP,),
        summed_from="experts",
    ),
    schema.Table(
        "routing/{gap}/missing/{layers}/{k}",
        (schema.count("", "experts of one policy that the other did not choose, by layer", "layers"),),
        "the same by layer",
        needs=(schema.EXPERTS_OF_GAP,),
        summed_from="experts",
    ),
    *(
        schema.Table(
            f"routing/{{gap}}/{part}",
            (
                schema.count("tokens", "tokens", at_most="gaps/{gap}/tokens"),
                schema.magnitude("k3", "k3"),
                schema.magnitude("square", "d^2", square_of=("tokens", "size"), product=True),
                schema.magnitude("size", "|d|", square_of=("tokens", "root")),
                schema.magnitude("root", "sqrt(|d|)"),
            ),
            f"tokens whose routing is {part}",
            needs=(schema.OF_GAP, schema.EXPERTS_OF_GAP),
            summed_from="experts",
        )
        for part in PARTS
    ),
    schema.Table(
        "routing/{gap}/trend",
        (
            schema.count("layers", "c, the layers of a token that differ", at_most="layers_square"),
            schema.count("layers_square", "c^2", square_of=("routing/{gap}/changed/tokens", "layers")),
            schema.magnitude("layers_moment", "c d^2", product=True),
            schema.magnitude(
                "layers_root",
                "c sqrt(|d|)",
                product_of=("routing/{gap}/changed/tokens", "layers_square", "routing/{gap}/changed/size"),
            ),
        ),
        "what a line of d^2 on c needs",
        needs=(schema.OF_GAP, schema.EXPERTS_OF_GAP),
        summed_from="experts",
    ),
)


def tables_of_gap(
    gap: str, k: int, missing: Array, by_layers: Array, sums: Array | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of a gap that has a token, from what was counted; none by layer where nothing differs.

    missing    [layers]: experts of one policy that the other did not choose
    by_layers  [layers + 1]: tokens by how many of their layers differ
    sums       [PART_KEYS, layers + 1]: over the same tokens; None where the gap's log-probs were not sent
    """
    prefix, layers, c = f"{PREFIX}/{gap}", len(missing), np.arange(len(by_layers))
    counts = (by_layers.sum(), by_layers[1:].sum(), c @ by_layers)
    names = ("tokens", "changed_tokens", "changed_layers")
    yield f"{prefix}/counts/{layers}/{k}", dict(zip(names, map(int, counts), strict=True))
    if missing.any():
        yield f"{prefix}/missing/{layers}/{k}", {"": missing}
    if sums is None:
        return
    for name, those in zip(PARTS, (slice(1), slice(1, None)), strict=True):
        if by_layers[those].any():
            values = dict(zip(PART_KEYS, sums[:, those].sum(1).tolist(), strict=True))
            yield f"{prefix}/{name}", {"tokens": int(by_layers[those].sum()), **values}
    if by_layers[1:].any():
        _, squares, _, roots = sums
        values = {"layers_moment": float(c @ squares), "layers_root": float(c @ roots)}
        yield f"{prefix}/trend", {"layers": int(c @ by_layers), "layers_square": int(c**2 @ by_layers), **values}


def routing(arrays: Arrays) -> dict[str, Any]:
    """{gap: figures}; a gap of which no two expert arrays were sent is left out.

    `tokens` T; `agreement`, the mean of |E_a ∩ E_b| / k over tokens and layers; `changed_tokens_fraction`, the share of
    tokens with a layer whose sets differ; `changed_layers_mean`, such layers per token; `by_layer`, the agreement of
    each layer in order; and where the gap's log-probs were sent `agreeing` and `changed`: how its k3 and d^2 divide;
    and `trend`: how d^2 grows with the number of layers that differ.
    """
    found: dict[str, Any] = {}
    for gap in dict.fromkeys(path.split("/")[1] for path in arrays.under(PREFIX)):
        of_gap = f"{PREFIX}/{gap}"
        shapes = _shapes(arrays, of_gap)
        counts = {shape: arrays.record(f"{of_gap}/counts/{shape[0]}/{shape[1]}") for shape in shapes}
        found[gap] = _agreement(counts, {shape: _missing(arrays, of_gap, shape) for shape in shapes})
        split = {name: arrays.record(f"{of_gap}/{name}") for name in PARTS if f"{of_gap}/{name}" in arrays}
        if split:
            found[gap] |= {name: _part(split.get(name, {}), split) for name in PARTS}
            trend = _trend(arrays.record(f"{of_gap}/trend"), split)
            found[gap] |= {"trend": trend} if trend else {}
    return found


#: Layers and k.
Shape = tuple[int, int]


def _shapes(arrays: Arrays, of_gap: str) -> list[Shape]:
    paths = [path.split("/") for path in arrays.under(f"{of_gap}/counts")]
    return sorted((int(layers), int(k)) for *_, layers, k in paths)


def _missing(arrays: Arrays, of_gap: str, shape: Shape) -> Array:
    """[layers]: experts of one policy that the other did not choose."""
    path = f"{of_gap}/missing/{shape[0]}/{shape[1]}"
    return arrays[path] if path in arrays else np.zeros(shape[0], np.int64)


def _agreement(counts: Mapping[Shape, Sums], missing: Mapping[Shape, Array]) -> dict[str, Any]:
    tokens = sum(sums["tokens"] for sums in counts.values())
    cells = sum(layers * sums["tokens"] for (layers, _), sums in counts.items())
    lost = sum(int(by_layer.sum()) / k for (_, k), by_layer in missing.items())
    return {
        "tokens": tokens,
        "agreement": 1 - lost / cells,
        "changed_tokens_fraction": sum(sums["changed_tokens"] for sums in counts.values()) / tokens,
        "changed_layers_mean": sum(sums["changed_layers"] for sums in counts.values()) / tokens,
        "by_layer": [_of_layer(layer, counts, missing) for layer in range(max(layers for layers, _ in counts))],
    }


def _of_layer(layer: int, counts: Mapping[Shape, Sums], missing: Mapping[Shape, Array]) -> float:
    """Mean agreement of one layer, over the tokens that have it."""
    here = [shape for shape in counts if shape[0] > layer]
    tokens = sum(counts[shape]["tokens"] for shape in here)
    return 1 - sum(int(missing[shape][layer]) / shape[1] for shape in here) / tokens


def _part(part: Sums, split: Mapping[str, Sums]) -> dict[str, float | None]:
    """Means over a part's tokens, and its shares of all; None where there is nothing to divide by."""
    tokens = part.get("tokens", 0)
    k3, square = part.get("k3", 0.0), part.get("square", 0.0)
    return {
        "tokens": tokens,
        "k3": k3 / tokens if tokens else None,
        "second_moment": square / tokens if tokens else None,
        "share_of_tokens": _share(tokens, "tokens", split),
        "share_of_k3": _share(k3, "k3", split),
        "share_of_second_moment": _share(square, "square", split),
    }


def _share(value: float, name: str, split: Mapping[str, Sums]) -> float | None:
    whole = sum(table[name] for table in split.values())
    return value / whole if whole > 0 else None


def _trend(sums: Sums, split: Mapping[str, Sums]) -> dict[str, float]:
    """The least-squares line of d^2 on c, the layers of a token that differ; none where c does not vary, nor where |d|
    varies by no more than sums of float32 do.

    `intercept` is what is left of d^2 where all layers agree, `slope` nats^2 per layer, `share` that of sum d^2 which
    grows with c: slope * mean c / mean d^2, within 0 and 1. `z` is that of the slope of sqrt|d|, whose tail is light.
    """
    tokens, _, square, size, root = (sum(t[name] for t in split.values()) for name in ("tokens", *PART_KEYS))
    if not sums or not square > 0:
        return {}
    line = of_sums(tokens, sums["layers"], square, sums["layers_square"], sums["layers_moment"])
    roots = of_sums(tokens, sums["layers"], root, sums["layers_square"], sums["layers_root"], size)
    if not (roots.xx > 0 and roots.yy > ROUNDED * size):
        return {}
    return {
        "intercept": line.intercept,
        "slope": line.slope,
        "share": max(0.0, min(1.0, line.share)),
        "z": over(roots.slope, roots.chance_error),
    }


_PART: Final = (
    Figure("tokens", "tokens", "of the part"),
    Figure("k3", "nats", "mean k3 of the gap over them"),
    Figure("second_moment", "nats^2", "mean d^2 over them"),
    Figure("share_of_tokens", "share", "that they are"),
    Figure("share_of_k3", "share", "of the gap's k3 that they hold"),
    Figure("share_of_second_moment", "share", "of the gap's second moment that they hold"),
)

FIGURES: Final = under(
    "{gap}",
    (
        Figure("tokens", "tokens", "with the experts of both policies"),
        Figure(
            "agreement", "share of experts", "mean of |E_a and E_b| / k over tokens and layers",
            source="R3, arXiv 2510.11370", headline=True, gauge=gauge("routing_agreement_ratio"),
        ),
        Figure("changed_tokens_fraction", "share of tokens", "with a layer whose sets differ"),
        Figure("changed_layers_mean", "layers", "whose sets differ, per token"),
        Figure("by_layer.{index}", "share of experts", "agreement of one layer"),
        *under("agreeing", _PART),
        *under("changed", _PART),
        Figure("trend.intercept", "nats^2", "d^2 where all layers agree, by the line of d^2 on such layers"),
        Figure("trend.slope", "nats^2 per layer", "of that line"),
        Figure("trend.share", "share", "of the second moment that grows with such layers"),
        Figure("trend.z", "", "of the slope of sqrt(|d|)"),
    ),
)  # fmt: skip


def _check(facts: "Facts", parts: Sequence[str], path: str) -> None:
    _, gap, part, *shape = parts
    prefix = f"{PREFIX}/{gap}"
    found = [*facts.arrays.under(f"{prefix}/counts")]
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


def _check_divided(facts: "Facts", gap: str, part: str, path: str) -> None:
    facts.check_gap(gap, path)
    sums = facts.arrays.record(path)
    found = [facts.arrays.record(f"{PREFIX}/{gap}/{name}").get("tokens", 0) for name in PARTS]
    need(sum(found) == facts.count(gap), path, "does not divide the tokens of the gap")
    if part == "trend":
        need(bool(found[1]), path, "needs tokens whose routing changed")
    else:
        need(sums["tokens"] > 0, f"{path}/tokens", "must not be 0")


def _named(parts: Sequence[str], beside: "Beside", path: str) -> None:
    """The experts of a shard have one number of layers and one k: tables of others are refused before they are made."""
    _, gap, _, *shape = parts
    need(not shape or beside.said.setdefault((PREFIX, gap), shape) == shape, path, "is of another shape of experts")


KIND: Final = Kind(
    "routing",
    TABLES,
    routing,
    FIGURES,
    "Only where two of the expert arrays were sent, by gap.",
    of_shards=True,
    measured="offpolicy_monitor.measure.routing",
    gapless=True,
    check=_check,
    named=_named,
)
