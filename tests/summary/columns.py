"""Columns of one sequence, measured in blocks of three tokens."""

import numpy as np
from offpolicy_monitor.batch import UNKNOWN_ORIGIN, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.tables import MAKERS
from offpolicy_monitor.summary.step import StepSummary

Columns = dict[str, list[float]]
MEASURER = Measurer("cpu")
MEASURER.block_tokens = 3


def measured(columns: Columns, *makers: str) -> StepSummary:
    """Their summary: with the tables of some makers, or with all."""
    tokens = {name: np.array(values, np.float32) for name, values in columns.items()}
    batch = RaggedBatch.from_positions(np.array([len(columns["logprobs"])]), tokens, {})
    chosen = [maker for maker in MAKERS if not makers or maker.name in makers]
    return MEASURER.measure(batch, (), UNKNOWN_ORIGIN, chosen)
