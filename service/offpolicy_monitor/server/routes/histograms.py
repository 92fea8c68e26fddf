"""GET /v1/runs/{run}/steps/{step}/histograms: how many tokens and sequences have which log-ratio, and how many tokens
which two log-probs. Knows no SQL."""

import math
from typing import Any

import numpy as np
from fastapi import Request
from numpy.typing import NDArray

from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.http.parameters import KnownRun, Minibatch, StepNumber
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.summary.gap import SHOWN
from offpolicy_monitor.summary.histogram import Histogram, bin_edges
from offpolicy_monitor.summary.tables.density import GAPS, density, edges

router = store_router()


@router.get(
    "/runs/{run}/steps/{step}/histograms",
    summary="Log-ratios and log-probs of one step, counted",
    responses=openapi.answers(models.StepHistograms, "Bins that hold something, ascending.", 404, 410),
)
def get_histograms(run: KnownRun, step: StepNumber, request: Request, minibatch: Minibatch = None) -> dict[str, Any]:
    """Per gap the tokens by `log_ratio`, and the sequences by `log_geometric_ratio`; of all advantage signs.

    `densities` has the tokens of mismatch and total by both of their log-probs, where all of them were counted.
    """
    step, minibatch, summary = services.of(request).store.summary(run, step, minibatch)
    gaps = {
        gap: {quantity: filled_bins(found.histogram(quantity)) for quantity in SHOWN}
        for gap, found in summary.gaps.items()
    }
    densities = {gap: filled_cells(found) for gap in GAPS if (found := density(summary.arrays, gap)) is not None}
    return {"step": step, "minibatch": minibatch, "gaps": gaps, "densities": densities}


def filled_bins(histogram: Histogram) -> dict[str, list[Any]]:
    """`low` < value <= `high` and how many, of each bin that holds something; null where a bin is open."""
    filled = np.flatnonzero(histogram.counts)
    low, high = (edges[filled] for edges in bin_edges())
    ends = {"low": low, "high": high}
    return {
        **{name: [edge if math.isfinite(edge) else None for edge in edges.tolist()] for name, edges in ends.items()},
        "count": histogram.counts[filled].tolist(),
    }


def filled_cells(counts: NDArray[np.int64]) -> dict[str, list[Any]]:
    """The cells that hold something: between which edges both log-probs are, and how many tokens.

    Bin k is above edge k - 1, at most edge k.
    """
    numerator, denominator = np.nonzero(counts)
    return {
        "edges": edges().tolist(),
        "numerator": numerator.tolist(),
        "denominator": denominator.tolist(),
        "count": counts[numerator, denominator].tolist(),
    }
