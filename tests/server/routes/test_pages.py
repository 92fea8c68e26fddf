"""Pages: what they show, that names cannot break out of them, and that the curl line works as printed."""

import html
import re
import shlex
from typing import Any

import pytest
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import JSON, Client, json_bytes, running


def curl_arguments(page: str) -> dict[str, Any]:
    """The request that the page's curl line would send."""
    found = re.search(r"<code>(curl .*?)</code>", page, re.S)
    assert found is not None
    words = shlex.split(html.unescape(found.group(1)))
    assert words[:3] == ["curl", "-X", "POST"]
    name, _, value = words[words.index("-H") + 1].partition(": ")
    return {"url": words[3], "headers": {name: value}, "content": words[words.index("-d") + 1]}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_curl_line_of_a_page_works_as_printed(client: Client, path: str) -> None:
    response = client.post(**curl_arguments(client.get(path).text))
    assert response.status_code == 200, response.text


def test_the_page_lists_runs_with_their_last_step_and_links(client: Client) -> None:
    client.post("/v1/runs/my-run/batches", content=json_bytes(step=41), headers=JSON)
    page = client.get("/").text
    assert ">my-run<" in page
    assert ">41<" in page
    assert ">accept<" in page
    assert '"/v1/runs/my-run"' in page
    assert "curl" not in page


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(client: Client, path: str) -> None:
    response = client.get(path)
    assert response.headers["content-security-policy"].startswith("default-src 'self'")
    fetched = re.findall(r"(?:src|href)=\"([^\"]+)\"", response.text)
    assert fetched and all(address.startswith(("/", "#")) for address in fetched)
    assert "<script" not in response.text and "style=" not in response.text


def test_every_link_of_the_page_answers(client: Client) -> None:
    client.post("/v1/runs/my-run/batches", content=json_bytes(), headers=JSON)
    for address in set(re.findall(r"(?:src|href)=\"([^\"]+)\"", client.get("/").text)):
        assert client.get(html.unescape(address)).status_code == 200, address


def test_static_files_are_looked_up_by_name(client: Client) -> None:
    assert client.get("/static/page.css").headers["content-type"].startswith("text/css")
    for name in ("nothing.css", "..%2fpages.py", "%2e%2e"):
        assert client.get(f"/static/{name}").status_code == 404


def test_the_docs_page_has_every_operation(client: Client) -> None:
    page = client.get("/docs").text
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        assert html.escape(path) in page
        assert all(f">{method.upper()}<" in page for method in methods)


def test_while_the_store_is_away_the_page_says_so_as_a_page() -> None:
    with running(create_app(Settings(database_url="postgresql://nobody@127.0.0.1:1/none", device="cpu"))) as client:
        response = client.get("/")
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.headers["content-type"].startswith("text/html")
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
        assert "Not available" in response.text
        assert 'offpolicy_rejected_requests_total{reason="store-unavailable"} 1.0' in client.get("/metrics").text
