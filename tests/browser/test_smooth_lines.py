"""Smooth lines as the pages' own module makes them: a mean that looks back, as many steps as are chosen."""

import math

import pytest
from offpolicy_monitor.pages import assets
from playwright.sync_api import Page

ASK = """async ([module, ...given]) => (await import(module)).smoothed(...given)"""


@pytest.mark.parametrize("is_log", [False, True])
def test_a_step_counts_less_the_further_back_it_is_and_a_gap_stays_one(any_page: Page, is_log: bool) -> None:
    steps, values = [0, 1, 3, 4, 5], [1.0, 100.0, None, 1.0, 1.0]
    module = f"/static/{assets.VERSION}/charts/smooth.js"
    found = any_page.evaluate(ASK, [module, steps, values, 5, is_log])
    assert any_page.evaluate(ASK, [module, [7], [0.0], 5, is_log]) == [None if is_log else 0.0]
    one, far = math.exp(-1 / 5), math.exp(-3 / 5)
    second = (1 - one) * (2.0 if is_log else 99.0)  # above 1, or its decimal logarithm
    above = [0.0, second, None, second * far, second * far * one]
    expected = [None if value is None else 10**value if is_log else 1 + value for value in above]
    assert [value is None for value in found] == [value is None for value in expected]
    assert [v for v in found if v] == pytest.approx([v for v in expected if v])
