"""The pages of a service with planted runs, in a browser."""

import pytest
from playwright.sync_api import Browser

from tests.fixtures.chromium import Open, opened
from tests.fixtures.live import Service


@pytest.fixture
def show(chromium: Browser, planted: Service) -> Open:
    """Open a page of the planted service by its path."""
    return lambda path, **context: opened(chromium, planted.url + path, **context)
