"""docs/figures.md, and the tables of a gap's figures in docs/methods.md: all from the rows of the catalogue."""

from offpolicy_monitor.figures import FIGURES, Figure
from offpolicy_monitor.figures.rows.gaps import OF_SEQUENCES, OF_TOKENS

from scripts.docs.markdown import table

HEAD = """# Figures

Every figure that is answered, by its path: the keys from the top of a step's answer to a number, joined by dots. The
path is the same everywhere: `GET /v1/runs/{run}/series?field=` plots it, alert rules and diagnoses look at it; the
evidence of a diagnosis, which is of the mismatch alone, leaves `gaps.` out. `{gap}`
is `mismatch`, `staleness` or `total`, `{method}` the name of a row, `{index}` that of an entry of a list, from 0; what
stands at `correction` is of the row that the run says it really uses. Formulas are in [methods.md](methods.md), the
families that show gauges in [metrics.md](metrics.md).

Kept narrow are the figures that are plotted over thousands of steps in milliseconds; any other is read out of the
stored steps. A figure whose inputs were not sent is absent, never 0.

This page is generated from `service/offpolicy_monitor/figures` by `make docs`.

"""


def figures_page() -> str:
    """One row per figure."""
    rows = ((f"`{one.path}`", one.unit, one.meaning, _gauge(one), _narrow(one), one.since) for one in FIGURES)
    return HEAD + table(("figure", "unit", "meaning", "gauge", "kept narrow", "since"), rows)


def token_table() -> str:
    """The figures of a gap: formula, code and source."""
    rows = ((_name(one), one.meaning, one.code, one.source) for one in OF_TOKENS)
    return table(("figure", "formula", "code", "source"), rows)


def sequence_table() -> str:
    """The same of its sequences."""
    rows = ((_name(one), one.meaning) for one in OF_SEQUENCES)
    return table(("figure of `sequence`", "formula"), rows)


def _name(figure: Figure) -> str:
    """Its name as in a gap's answer, that of the quantiles without their own."""
    return f"`{figure.path.removesuffix('.{quantile}').rpartition('.')[2]}`"


def _gauge(figure: Figure) -> str:
    if figure.gauge is None:
        return ""
    labels = ",".join(f'{name}="{value}"' for name, value in figure.gauge.labels.items())
    return f"`offpolicy_{figure.gauge.family}{f'{{{labels}}}' if labels else ''}`"


def _narrow(figure: Figure) -> str:
    return ("yes" if figure.headline else "") if isinstance(figure.headline, bool) else ", ".join(figure.headline)
