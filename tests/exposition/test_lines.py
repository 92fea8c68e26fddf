"""Sample lines are those that prometheus_client would write, in both formats."""

import math

import pytest
from offpolicy_monitor.exposition.lines import Encode, OneFamily, head, line
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

FORMATS = [choose_encoder(accept)[0] for accept in ("", "application/openmetrics-text; version=1.0.0")]
VALUES = [0.0, -0.0, 1, 3, 10.0, 1e-12, -1 / 3, 1234567.0, 1e21, 1.7976931348623157e308, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("encode", FORMATS, ids=["text", "OpenMetrics"])
@pytest.mark.parametrize("value", VALUES)
def test_a_family_is_its_head_and_its_lines(encode: Encode, value: float) -> None:
    labels = {"run": "r\u00f6d", "gap": 'a"b', "unit": "back\\slash\nfeed"}
    metric = GaugeMetricFamily("offpolicy_x", "What it \\ means.", labels=list(labels))
    alone = head(metric, encode)
    metric.add_metric(list(labels.values()), value)
    written = encode(OneFamily(metric)).removesuffix(b"# EOF\n")
    assert alone.startswith(b"# HELP offpolicy_x What it ")
    assert written == alone + line("offpolicy_x", labels, value).encode()
