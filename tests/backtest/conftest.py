"""A real service with a run that drifts and one that is young."""

from collections.abc import Iterator

import pytest

from tests.fixtures.drifting import post_runs
from tests.fixtures.live import Service, serving


@pytest.fixture(scope="package")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("answers"), OFFPOLICY_KEEP_WORST="3") as service:
        post_runs(service.url)
        yield service
