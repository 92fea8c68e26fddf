"""Fields of a method that are read off tables: its length bias, and how much its anchor matters."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.sums import fraction
from offpolicy_monitor.summary.tables import Tables, under
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


def method_extras(tables: Tables, tokens: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """{row: fields}: `length_bias`, and `anchor_disagreement`; `tokens` are those that each row ran on.

    The latter is the share of tokens, among those valid for all log-probs, whose decision differs when the rule is
    anchored on mu instead of pi_old, or the other way round.
    """
    extras = length_biases(tables, tokens)
    for (row,), table in under(tables, "anchor"):
        extras.setdefault(unquote(row), {})["anchor_disagreement"] = fraction(table["differing"], table["tokens"])
    return extras
