"""Tables: named rows of sums that merge entry by entry; what everything beyond the core figures is kept in.

A table's name is a path of parts joined by `/` (`breakdown/position/first/mismatch`); its entries are counts, sums, or
the bins of a sparse histogram. All are added when summaries merge, so a table that is missing is a table of zeros.
What a table means is known to the module that reads it; this one knows none.
"""

from collections.abc import Iterator, Mapping

Table = Mapping[str, float]
Tables = Mapping[str, Table]


def merge_tables(left: Tables, right: Tables) -> dict[str, Table]:
    """Add two sets of tables entry by entry."""
    merged = dict(left)
    for name, table in right.items():
        merged[name] = add_tables(merged[name], table) if name in merged else table
    return merged


def add_tables(left: Table, right: Table) -> dict[str, float]:
    """Add two tables entry by entry."""
    added = dict(left)
    for key, value in right.items():
        added[key] = added[key] + value if key in added else value
    return added


def under(tables: Tables, prefix: str) -> Iterator[tuple[list[str], Table]]:
    """Tables whose names begin with the parts of `prefix`, each with the parts that follow it."""
    for name, table in tables.items():
        if name.startswith(f"{prefix}/"):
            yield name[len(prefix) + 1 :].split("/"), table
