"""The pages of a service with planted runs, in a browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.fixtures.chromium import Open, opened
from tests.fixtures.live import Service, serving


@pytest.fixture
def show(chromium: Browser, planted: Service) -> Open:
    """Open a page of the planted service by its path."""
    return lambda path, **context: opened(chromium, planted.url + path, **context)


@pytest.fixture(scope="module")
def any_page(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One for all tests of a file, which call functions of its modules and leave it as it is."""
    with serving(tmp_path_factory.mktemp("any")) as service, opened(chromium, f"{service.url}/alerts") as page:
        yield page
