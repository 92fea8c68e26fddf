"""Fields of a method that are read off tables: its length bias, and how much its anchor matters."""

from typing import Any, Final
from urllib.parse import unquote

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.sums import fraction
from offpolicy_monitor.summary.tables.lengths import length_biases

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
