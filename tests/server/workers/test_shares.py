"""What one worker may take: all of them together take no more than the settings say."""

from pathlib import Path

import pytest
from offpolicy_monitor.server.workers.shares import SHARED, share_of
from offpolicy_monitor.settings import Settings


@pytest.mark.parametrize("workers", [1, 2, 3, 64])
def test_workers_together_take_what_the_settings_allow(workers: int) -> None:
    settings = Settings(workers=workers)
    own = share_of(settings)
    for name in SHARED:
        whole, share = getattr(settings, name), getattr(own, name)
        assert share * workers <= max(whole, workers)
        assert share >= 1 and (share + 1) * workers > whole
    others = Settings.model_fields.keys() - {*SHARED, "measure_processes"}
    assert all(getattr(own, name) == getattr(settings, name) for name in others)
    assert own.measure_processes == 0


def test_nothing_is_shared_as_nothing() -> None:
    assert share_of(Settings(workers=4, rollout_bytes=0)).rollout_bytes == 0


def test_what_is_shared_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "workers.md").read_text()
    assert [name for name in SHARED if f"`{Settings.variable(name)}`" not in page] == []
