"""Anchor disagreement: on how many tokens a rule decides otherwise when mu is its anchor instead of pi_old.

A rule on staleness is anchored on pi_old, on total on mu; each runs on the other gap too, over the tokens that are
valid for all three log-probs. Rules on mismatch compare no current policy and have no other anchor.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.kind import Kind, OfMethods
from offpolicy_monitor.summary.records import Formulas, Records, Wanted
from offpolicy_monitor.summary.scheme import REMEMBERED
from offpolicy_monitor.vocabulary import LOGPROBS

if TYPE_CHECKING:
    from offpolicy_monitor.measure.view import BlockView

TABLES: Final = (
    schema.Table(
        "anchor/{row}",
        (
            schema.count("tokens", "tokens valid for all three gaps", at_most="cross/tokens"),
            schema.count("differing", "tokens decided otherwise", at_most="tokens"),
        ),
        "a method row with the other anchor",
        needs=LOGPROBS,
        when="a rule on staleness or total",
        filled=True,
    ),
)


_DISAGREEMENT: Final = Formulas({"anchor_disagreement": ("differing", "tokens")}, {})


def anchor_disagreements(arrays: Arrays, names: tuple[str, ...], wanted: Wanted) -> OfMethods:
    """`anchor_disagreement`: a share of tokens, among those valid for all log-probs.

    Those whose decision differs when the rule is anchored on mu instead of pi_old, or the other way round.
    """
    paths = tuple(arrays.under("anchor")) if _DISAGREEMENT.any(wanted) else ()
    rows = _rows_of(paths)
    return OfMethods(
        rows,
        _DISAGREEMENT.of(Records.at(arrays, paths)) if paths else {},
        lambda tokens: [row in tokens for row in rows],
        lambda number, figures: figures,
        rows,
    )


@lru_cache(REMEMBERED)
def _rows_of(paths: tuple[str, ...]) -> tuple[str, ...]:
    """The rows that these tables are of."""
    return tuple(unquote(path.split("/")[1]) for path in paths)


def sums_of(view: "BlockView") -> dict[str, Any]:
    """[rows that have another anchor]: tokens that they decide otherwise by it."""
    return {} if view.differing is None else {"anchors": view.differing[1]}


def tables_of(arrays: Mapping[str, Array], view: "BlockView") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The anchor tables; none unless all three log-probs were sent, and some token is valid for all."""
    if view.differing is not None and arrays["cross/tokens"]:
        for number, differing in zip(view.differing[0], arrays["anchors"], strict=True):
            name = quote(view.decider.rows[number].name, safe="")
            yield f"anchor/{name}", {"tokens": arrays["cross/tokens"], "differing": differing}


KIND: Final = Kind("anchors", TABLES, measured=__name__, ingested=True, of_methods=anchor_disagreements)
