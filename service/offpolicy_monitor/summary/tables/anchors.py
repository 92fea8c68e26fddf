"""Anchor disagreement: on how many tokens a rule decides otherwise when mu is its anchor instead of pi_old.

A rule on staleness is anchored on pi_old, on total on mu; each runs on the other gap too, over the tokens that are
valid for all three log-probs. Rules on mismatch compare no current policy and have no other anchor. With it stands the
other field of a method that is read off tables: its length bias.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.sums import fraction
from offpolicy_monitor.summary.tables.lengths import length_biases

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
        needs="three log-probs",
    ),
)


def method_extras(arrays: Arrays) -> dict[str, dict[str, Any]]:
    """{row: fields}: `length_bias`, and `anchor_disagreement`.

    The latter is the share of tokens, among those valid for all log-probs, whose decision differs when the rule is
    anchored on mu instead of pi_old, or the other way round.
    """
    extras = length_biases(arrays)
    for path in arrays.under("anchor"):
        sums = arrays.record(path)
        disagreement = fraction(sums["differing"], sums["tokens"])
        extras.setdefault(unquote(path.split("/")[1]), {})["anchor_disagreement"] = disagreement
    return extras


def sums_of(view: "BlockView") -> dict[str, Any]:
    """[rows that have another anchor]: tokens that they decide otherwise by it."""
    return {} if view.differing is None else {"anchors": view.differing[1]}


def tables_of(arrays: Mapping[str, Array], view: "BlockView") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The anchor tables; none unless all three log-probs were sent, and some token is valid for all."""
    if view.differing is not None and arrays["cross/tokens"]:
        for number, differing in zip(view.differing[0], arrays["anchors"], strict=True):
            name = quote(view.decider.rows[number].name, safe="")
            yield f"anchor/{name}", {"tokens": arrays["cross/tokens"], "differing": differing}


KIND: Final = Kind("anchors", TABLES, measured=__name__, of_rows=True)
