"""Scores: what the pass lacks is measured by torch, and what there is it has."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from offpolicy_monitor.batch import UNKNOWN_ORIGIN, RaggedBatch
from offpolicy_monitor.core import scores
from offpolicy_monitor.fused import arrays, sequences
from offpolicy_monitor.fused.parts import are_known, asked
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.fused import Fused
from offpolicy_monitor.methods import METHODS, PRESETS, MethodRow, parse_row
from offpolicy_monitor.methods import rule as rules
from offpolicy_monitor.methods.catalogue import kept_scores
from offpolicy_monitor.methods.curve import (
    LOCAL_SCORES,
    PLAIN,
    SEQUENCE_SCORES,
    TOKEN_SCORES,
    Curve,
    exceeds,
    outward,
)
from offpolicy_monitor.methods.model import Form, Method, Threshold
from offpolicy_monitor.slices import finished
from offpolicy_monitor.vocabulary import GAPS

Near = Callable[[Form], MethodRow]
ON_REQUEST = {
    "m2po_paper": {"threshold": 0.01},
    "vaco": {"threshold": 0.05},
    "cppo": {"delta": 0.1},
    "seq_mis": {"upper": 2.0},
}


def batch() -> RaggedBatch:
    source = np.random.default_rng(0)
    mu = -source.exponential(1.0, 300).astype(np.float32) - 1
    old = mu + source.normal(0, 0.05, 300).astype(np.float32)
    columns = {"sampling_logprobs": mu, "old_logprobs": old, "logprobs": old}
    return RaggedBatch.from_positions(np.full(3, 100), columns, {})


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Form], MethodRow]]:
    """Lets there be a method of a form, and makes a row of it."""

    def there_is(form: Form) -> MethodRow:
        parameters = {"threshold": Threshold(), "other": Threshold(1.0)}
        method = Method("near", "an example", "", "mismatch", ("token",), parameters, {("token", ""): form})
        monkeypatch.setitem(METHODS, "near", method)
        forget()
        return parse_row({"method": "near", "gap": "mismatch", "threshold": 0.05})

    yield there_is
    monkeypatch.undo()
    forget()


def forget() -> None:
    """What was made of methods as they were."""
    for made in (kept_scores, are_known):
        made.cache_clear()


def test_the_pass_has_every_score_that_there_is() -> None:
    assert arrays.NAMES == LOCAL_SCORES
    assert {*sequences.NAMES} >= {*SEQUENCE_SCORES}
    assert are_known(asked(PRESETS), GAPS)
    assert are_known(asked(tuple(parse_row({"method": name, **row}) for name, row in ON_REQUEST.items())), GAPS)


def test_a_row_on_a_score_that_the_pass_lacks_is_measured_by_torch(
    fused: Fused, near: Near, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "TOKEN_SCORES", (*TOKEN_SCORES, "ratio_distance"))
    monkeypatch.setitem(scores.OF_TOKENS, "ratio_distance", lambda gaps: gaps.columns.log_ratio.expm1().abs())
    row, sent = near(Form({"threshold": Curve("ratio_distance", True, PLAIN, kept=False)})), batch()
    assert fused(sent, (row,), UNKNOWN_ORIGIN, None) is None
    measurer = Measurer("cpu")
    measurer.use(fused)
    share = float((np.abs(np.expm1(sent.columns["old_logprobs"] - sent.columns["sampling_logprobs"])) > 0.05).mean())
    assert 0.1 < share < 0.9
    stored = measurer.measure(sent, (row,)).figures()["methods"]["near"]
    [evaluated] = finished(measurer.evaluation(sent, (row,))).methods
    assert stored["masked_token_fraction"] == evaluated["masked_token_fraction"] == share


@pytest.mark.parametrize(
    "form",
    [
        Form(exceeds("threshold", "entropy_of_a_sequence")),
        Form({"threshold": Curve("log_ratio", True, PLAIN)}, weight="entropy_of_a_sequence"),
        Form({**outward("threshold", "outward_log_ratio"), "other": Curve("log_ratio", True, PLAIN)}),
    ],
)
def test_neither_is_a_rule_that_the_pass_cannot_compare(fused: Fused, near: Near, form: Form) -> None:
    row = near(form)
    assert fused(batch(), (row,), UNKNOWN_ORIGIN, None) is None
    assert fused.evaluation(batch(), (row,), "none", UNKNOWN_ORIGIN, lambda arrays: arrays) is None


def test_what_if_of_a_score_that_the_pass_lacks_is_kept_by_torch(near: Near) -> None:
    assert are_known(asked(PRESETS[:1]), GAPS)
    near(Form(exceeds("threshold", "entropy_of_a_sequence")))
    assert not are_known(asked(PRESETS[:1]), GAPS)
    assert not are_known(asked(PRESETS[:1]), ("staleness",))  # kept there where its own gap was not sent
