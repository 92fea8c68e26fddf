"""Sample lines are those that prometheus_client would write, in both formats."""

import math

import pytest
from offpolicy_monitor.exposition import lines
from offpolicy_monitor.exposition.lines import Around, Encode, OneFamily, escaped, head, line
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
    run, *others = labels
    around = Around("offpolicy_x", tuple(others))[tuple(labels[name] for name in others)]
    assert written == alone + line(around, escaped(labels[run]), value).encode()


def test_what_is_kept_of_label_sets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "KEPT", 3)
    around = Around("offpolicy_x", ("method",))
    found = [around[(str(number),)] for number in range(9)]
    assert len(around) <= 3
    assert found[8] == around[("8",)] == ('offpolicy_x{method="8",run="', '"} ')
