"""Pages as they are served: frames that load nothing from elsewhere, files named by what they hold.

What their scripts draw is tested in a browser (tests/browser).
"""

import html
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from offpolicy_monitor.pages import assets
from offpolicy_monitor.pages.render import page
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.routes.pages import PAGES
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import JSON, Client, json_bytes, running

PATHS = ("/", "/alerts", "/compare", "/runs/r1", "/runs/r1/steps/3", "/runs/r1/what-if", "/runs/r1/worst")
ALL = (*PATHS, "/runs/r1/diagnosis", "/docs", "/runbook")
ADDRESS = re.compile(r"(?:src|href)=\"([^\"]*)\"")


@pytest.fixture
def client(shared_client: Client) -> Client:
    """One for all tests: of run r1 nothing is stored."""
    return shared_client


def addresses(text: str) -> list[str]:
    """What a page leads to and loads."""
    return [html.unescape(found) for found in ADDRESS.findall(text)]


@pytest.mark.parametrize("path", ALL)
def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(client: Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["content-security-policy"].startswith("default-src 'self'")
    assert all(not address.startswith(("/", "http")) for address in addresses(response.text))
    assert re.findall(r"<script(?![^>]*src=)", response.text) == [] and "style=" not in response.text


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize("prefix", ["", "/team/monitor"])
def test_every_link_of_a_page_answers_behind_any_prefix(client: Client, path: str, prefix: str) -> None:
    for address in {found.partition("#")[0] for found in addresses(client.get(path).text)} - {""}:
        reached = urljoin(prefix + path, address)
        assert reached.startswith(f"{prefix}/"), address
        # What the page begins with is the run, which is not there yet.
        expected = 404 if reached.endswith("/v1/runs/r1") else 200
        assert client.get(reached.removeprefix(prefix)).status_code == expected, address


def test_a_page_takes_any_query_which_is_its_scripts_and_the_api_none_that_it_does_not_know(client: Client) -> None:
    assert client.get("/runs/r1?step=3&theme=dark&anything=1").status_code == 200
    assert client.get("/v1/runs?anything=1").status_code == 422


@pytest.mark.parametrize(
    ("query", "schemes", "dark"),
    [
        ("", "light dark", "(prefers-color-scheme: dark)"),
        ("?theme=dark", "dark", "all"),
        ("?theme=light", "light", "not all"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/runs/r1", "/docs", "/runbook"])
def test_a_page_comes_in_its_theme_before_any_script(
    client: Client, path: str, query: str, schemes: str, dark: str
) -> None:
    text = client.get(path + query).text
    assert f'<meta name="color-scheme" content="{schemes}">' in text
    assert re.search(rf'<link id="dark" [^>]*style/dark.css" media="{re.escape(dark)}">', text)
    assert text.index(assets.STYLE) < text.index("style/dark.css") < text.index("<script")


def test_a_theme_that_there_is_not_is_the_systems(client: Client) -> None:
    assert client.get('/?theme="><b>').text == client.get("/").text


@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("/.json?q=a&theme=dark", "/v1/runs?q=a"),
        ("/alerts.json?run=r1&state=active&q=K", "/v1/alerts?run=r1&state=active"),
        ("/compare.json?runs=r1,r2", "/v1/runs"),
        ("/runs/r1.json?step=3&x=1-9", "/v1/runs/r1"),
        ("/runs/r.1/steps/7.json?minibatch=0&theme=dark", "/v1/runs/r.1/steps/7?minibatch=0"),
        ("/runs/r1/what-if.json?a=opsm&at=0.1", "/v1/runs/r1/recommendations"),
        ("/runs/r1/worst.json?step=7&gap=total&a=opsm", "/v1/runs/r1/worst?step=7&gap=total"),
        ("/runs/r1/diagnosis.json?from=1&to=9", "/v1/runs/r1/diagnosis?from=1&to=9"),
    ],
)
def test_the_address_of_a_page_with_json_leads_to_its_call_behind_any_prefix(
    client: Client, path: str, call: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 307
    assert urljoin(f"/team/monitor{path}", answer.headers["location"]) == f"/team/monitor{call}"


def test_every_page_has_its_data_and_every_call_takes_what_is_asked_of_it(client: Client) -> None:
    assert client.post("/v1/runs/stored/batches", content=json_bytes(), headers=JSON).status_code == 200
    for each in PAGES:
        path = each.path.replace("{run}", "stored").replace("{step}", "7")
        found = client.get(f"{path}.json")
        reached = urljoin(f"{path}.json", found.headers["location"])
        assert client.get(reached).status_code == 200, path


def test_a_run_whose_name_ends_in_json_has_its_page_there(client: Client) -> None:
    assert client.post("/v1/runs/r1.json/batches", content=json_bytes(), headers=JSON).status_code == 200
    assert "<title>r1.json" in client.get("/runs/r1.json").text
    assert client.get("/runs/r1.json.json").headers["location"] == "../v1/runs/r1.json"


@pytest.mark.parametrize("name", ["<b>", "a b", "%22onload", "x" * 129])
def test_there_is_no_page_of_what_cannot_be_a_run(client: Client, name: str) -> None:
    assert client.get(f"/runs/{name}").status_code == 404


def test_every_page_has_its_script_and_no_script_is_without_a_page() -> None:
    drawn = {each.script for each in PAGES} | {"docs", "runbook"}
    assert drawn == {Path(name).stem for name in assets.FILES if re.fullmatch(r"pages/\w+\.js", name)}


def test_a_file_is_kept_for_good_under_an_address_that_names_what_it_holds(client: Client) -> None:
    found = client.get(f"/static/{assets.VERSION}/lib/dom.js")
    assert found.status_code == 200 and "immutable" in found.headers["cache-control"]
    assert "javascript" in found.headers["content-type"]
    for name in ("lib/nothing.js", "..%2frender.py", "%2e%2e/render.py", ""):
        assert client.get(f"/static/{assets.VERSION}/{name}").status_code == 404
    assert client.get("/static/000000000000/lib/dom.js").status_code == 404


def test_the_version_changes_with_any_file(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1")
    before = assets.digest(assets.files(tmp_path))
    (tmp_path / "a.js").write_text("2")
    changed = assets.digest(assets.files(tmp_path))
    (tmp_path / "a.js").rename(tmp_path / "b.js")
    assert len({before, changed, assets.digest(assets.files(tmp_path))}) == 3


def test_a_page_asks_for_one_script_and_names_the_library_of_plots_only_where_it_draws_some(client: Client) -> None:
    plots = dict[str, list[str]]()
    for each in PAGES:
        text = page("live.html", "/", each.script, title="", run="")
        [script] = re.findall(r'<script[^>]* src="\./static/[0-9a-f]+/([^"]+)"', text)
        assert script == f"bundles/{each.script}.js" and "import " not in client.get(_address(script)).text
        plots[each.script] = re.findall(r'data-plots="\./static/[0-9a-f]+/([^"]+)"', text)
    assert plots["run"] == [assets.PLOTTING] and plots["alerts"] == []
    assert client.get(_address(assets.PLOTTING)).status_code == 200


def test_all_styles_are_one_file_in_their_order(client: Client) -> None:
    text, files = client.get(_address(assets.STYLE)).text, [assets.text(name) for name in assets.STYLES]
    found = [text.index(each) for each in files]
    assert len(files) > 5 and found == sorted(found)


def _address(name: str) -> str:
    return f"/static/{assets.VERSION}/{name}"


def test_what_others_wrote_is_there_with_its_licence_and_version() -> None:
    listed = assets.FILES["vendor/README.md"].read_text()
    folders = {name.split("/")[1] for name in assets.FILES if name.startswith("vendor/") and name.count("/") > 1}
    assert folders == {"uplot", "swagger-ui"}
    assert all(f"{folder}/LICENSE" in listed and f"vendor/{folder}/LICENSE" in assets.FILES for folder in folders)
    assert "uPlot" in listed and assets.FILES["vendor/uplot/uPlot.iife.min.js"].stat().st_size > 40_000


def test_while_the_store_is_away_pages_are_served_all_the_same() -> None:
    with running(create_app(Settings(database_url="postgresql://nobody@127.0.0.1:1/none", device="cpu"))) as client:
        assert client.get("/").status_code == 200
        assert client.get("/v1/runs").status_code == 503
