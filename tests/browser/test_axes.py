"""Axes as the pages' own modules make them: what stands at a tick is the tick's own value."""

import pytest
from offpolicy_monitor.pages import assets
from playwright.sync_api import Page


@pytest.mark.parametrize("values", [[24], [0.31, 0.347], [7, 8], [1.5, 1.75], [820, 900], [0, 0]])
def test_a_tick_of_a_linear_axis_is_labelled_with_its_value(any_page: Page, values: list[float]) -> None:
    axis = any_page.evaluate(
        """async ([module, values]) => {
            const { ticks, label } = (await import(module)).linearAxis(values);
            return { ticks, labels: ticks.map(label) };
        }""",
        [f"/static/{assets.VERSION}/charts/axes.js", values],
    )
    assert len(axis["ticks"]) >= 2
    said = [float(label.replace("\u2212", "-").replace(",", "")) for label in axis["labels"]]
    assert said == pytest.approx(axis["ticks"])
