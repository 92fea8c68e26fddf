"""The slider of the what-if page: what it shows is the API's, its address holds it, two methods stand side by side."""

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.verdict.numbers import number, percent
from playwright.sync_api import Locator, Page, expect

from tests.fixtures.chromium import Open
from tests.fixtures.live import Service
from tests.fixtures.planted import ask

SHARES = ("masked_token_fraction", "masked_sequence_fraction", "masked_advantage_mass")
#: Milliseconds after the last change, and more.
SETTLED = 250
#: Whether a canvas has as many pixels of the advantage mass's colour as its line takes, and no mark alone.
DRAWN = """canvas => {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--preset");
  probe.fillRect(0, 0, 1, 1);
  const colour = probe.getImageData(0, 0, 1, 1).data;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    found += [0, 1, 2].every((part) => Math.abs(data[at + part] - colour[part]) < 30) ? 1 : 0;
  }
  return found > 300;
}"""
WIDE_BAND = {"method": "mask", "gap": "mismatch", "level": "geometric"}


def card(page: Page, slot: str) -> Locator:
    return page.get_by_role("region", name=f"Method {slot.upper()}")


def slider(page: Page, slot: str) -> Locator:
    return page.get_by_label(f"Threshold of method {slot.upper()}")


def address(page: Page) -> dict[str, str]:
    """The state that a link to this picture holds; an address is written once changes rest."""
    page.wait_for_timeout(SETTLED)
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def curve(service: Service, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = ask(service.url, f"/v1/runs/drifting/whatif?{urlencode(asked)}")
    return found


def shows(page: Page, slot: str, answer: dict[str, Any]) -> None:
    """The card's shares, error and settings are those of this answer of the API."""
    for index, name in enumerate(SHARES):
        expect(card(page, slot).locator(".outcome b").nth(index)).to_have_text(percent(answer[name][0]))
    expect(card(page, slot).locator(".outcome")).to_contain_text(f"± {percent(answer['error'][0])}")
    settings = card(page, slot).locator(".config code")
    expect(settings).to_have_count(len({row["framework"] for row in answer["config"]}))
    for row in answer["config"]:
        for line in row["lines"]:
            expect(card(page, slot).locator(".config")).to_contain_text(line)


def test_keys_on_the_slider_change_threshold_shares_settings_and_address_as_the_api_has_them(
    show: Open, planted: Service
) -> None:
    with show("/runs/drifting/what-if?a=opsm") as page:
        first = curve(planted, method="opsm", threshold=0.01, row="opsm")
        shows(page, "a", first)
        for key in ("ArrowLeft",) * 5 + ("PageDown", "ArrowRight"):
            slider(page, "a").press(key)
        moved = float(address(page)["at"])
        assert 0 < moved < 0.01
        expect(slider(page, "a")).to_have_attribute("aria-valuetext", f"delta {number(moved, 4)}")
        second = curve(planted, method="opsm", threshold=moved, row="opsm")
        assert second["masked_token_fraction"][0] > first["masked_token_fraction"][0]
        shows(page, "a", second)


def test_two_methods_stand_side_by_side_each_with_its_own_threshold(show: Open, planted: Service) -> None:
    with show("/runs/drifting/what-if?a=opsm&b=geometric_mask_wide") as page:
        for slot in "ab":
            expect(card(page, slot).locator(".outcome b").first).to_be_visible()
        of_a = slider(page, "a").get_attribute("aria-valuetext")
        slider(page, "b").press("End")
        moved = float(address(page)["bt"])
        answer = curve(planted, **WIDE_BAND, threshold=moved, row="geometric_mask_wide")
        shows(page, "b", answer["upper"])
        assert slider(page, "a").get_attribute("aria-valuetext") == of_a
        left, right = card(page, "a").bounding_box(), card(page, "b").bounding_box()
        assert left and right and left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]


def test_what_is_advised_is_set_by_its_button(show: Open, planted: Service) -> None:
    advice = ask(planted.url, "/v1/runs/drifting/recommendations")
    [wanted] = [row for row in advice["methods"] if row["method"] == "opsm" and not row.get("variant")]
    with show("/runs/drifting/what-if?a=opsm") as page:
        card(page, "a").get_by_role("button", name="Set it").click()
        shown = float(address(page)["at"])
        assert abs(shown / wanted["threshold"] - 1) < 0.005
        shows(page, "a", curve(planted, method="opsm", threshold=shown, row="opsm"))


def test_a_link_to_a_threshold_shows_that_threshold(show: Open, planted: Service) -> None:
    with show("/runs/drifting/what-if?a=opsm&at=0.0345&b=geometric_mask_wide&bb=lower&bt=0.97") as page:
        shows(page, "a", curve(planted, method="opsm", threshold=0.0345, row="opsm"))
        shows(page, "b", curve(planted, **WIDE_BAND, threshold=0.97, row="geometric_mask_wide")["lower"])


def test_every_preset_can_be_chosen_and_is_drawn_at_its_own_threshold(show: Open, planted: Service) -> None:
    with show("/runs/drifting/what-if") as page:
        select = card(page, "a").get_by_label("Method A", exact=True)
        assert select.locator("option").evaluate_all("all => all.map((one) => one.value)") == [
            row.name for row in PRESETS if row.whatif
        ]
        for row in PRESETS:
            assert row.whatif is not None
            bound = [name for name in row.whatif["thresholds"] if name in row.spec][-1]
            select.select_option(row.name)
            if len(row.whatif["thresholds"]) > 1:
                card(page, "a").get_by_label("Bound", exact=True).select_option(bound)
            at = row.spec[bound]
            expect(slider(page, "a")).to_have_attribute("aria-valuetext", f"{bound} {number(at, 4)}")
            answer = curve(planted, **row.whatif["query"], threshold=at, row=row.name)
            shows(page, "a", answer if answer["parameter"] else answer[bound])
            assert card(page, "a").locator(".plot canvas").evaluate(DRAWN), row.name
