"""What Prometheus sees of a stored histogram is what the histogram itself counts at those bounds."""

import numpy as np
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.exposition.histograms import exposed
from offpolicy_monitor.families import ABSOLUTE, SIGNED
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS


def test_exposed_counts_are_those_of_the_values() -> None:
    source = np.random.default_rng(7)
    tokens = 5000
    old = -source.exponential(1.0, tokens).astype(np.float32)
    new = (old + source.standard_normal(tokens) * 10.0 ** source.uniform(-6, 1, tokens)).astype(np.float32)
    lengths = np.full(50, 100, np.int64)
    batch = RaggedBatch.from_positions(lengths, {"old_logprobs": old, "logprobs": new}, {})

    found = exposed(Measurer("cpu").measure(batch, PRESETS))

    gap = (new - old).astype(np.float32)
    assert found["token_log_ratio_nats", "staleness"] == [
        *(int((gap <= np.float32(bound)).sum()) for bound in SIGNED),
        tokens,
    ]
    assert found["token_log_ratio_abs_nats", "staleness"] == [
        *(int(((gap <= np.float32(bound)) & (gap > np.float32(-bound))).sum()) for bound in ABSOLUTE),
        tokens,
    ]
    assert found["sequence_log_geometric_ratio_nats", "staleness"][-1] == 50
