"""What a page says in words: groups of tokens for people, charts for those who do not see them."""

import pytest
from offpolicy_monitor.pages import assets
from playwright.sync_api import Page, expect

from tests.fixtures.chromium import Open


def test_groups_of_a_step_are_named_by_what_is_in_them_in_their_order(show: Open) -> None:
    with show("/runs/drifting/steps/40") as page:
        card = page.get_by_role("region", name="By position in the sequence")
        expect(card.locator("tbody th").first).to_be_visible()
        assert card.locator("tbody th").all_inner_texts() == [
            "first token",
            "index 1",
            "index 2 to 3",
            "index 4 to 7",
            "index 8 to 15",
            "index 16 to 31",
            "last token",
        ]
        card = page.get_by_role("region", name="By the engine's probability of the token")
        assert card.locator("tbody th").all_inner_texts() == [
            "1% to 10%",
            "10% to 50%",
            "50% to 90%",
            "90% to 99%",
            "99% or more",
        ]


@pytest.mark.parametrize(
    ("dimension", "bucket", "words"),
    [
        ("mu_probability", "0", "below 0.01%"),
        ("mu_probability", "1e-4", "0.01% to 0.1%"),
        ("mu_probability", "1e-3", "0.1% to 1%"),
        ("length", "1", "1 token"),
        ("length", "1024", "1,024 to 2,047 tokens"),
        ("lag", "negative", "newer than the policy"),
        ("lag", "0", "0 versions"),
        ("lag", "1", "1 version"),
        ("lag", "9+", "9 versions or more"),
        ("turn", "16+", "turn 16 or later"),
        ("label:engine", "a%2Fb", "a/b"),
    ],
)
def test_a_bucket_is_said_with_its_unit(any_page: Page, dimension: str, bucket: str, words: str) -> None:
    said = any_page.evaluate(
        "async ([module, ...asked]) => (await import(module)).bucketWords(...asked)",
        [f"/static/{assets.VERSION}/lib/buckets.js", dimension, bucket],
    )
    assert said == words


def test_the_chart_of_shares_tells_the_shares_and_not_what_is_drawn_of_them(show: Open) -> None:
    with show("/runs/drifting") as page:
        label = page.get_by_role("img", name="What is the gap made of?").get_attribute("aria-label")
        assert label is not None and "1 less" not in label
        for part in ("mismatch rose from ", "interaction ", "staleness fell from "):
            assert part in label
        assert "share of the mean squared log-ratio" in label and "% to " in label
