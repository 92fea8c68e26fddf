"""What the command line shows of settings holds no secret."""

import pytest
from offpolicy_monitor.catalogue import PLAIN_FILE, without_password
from offpolicy_monitor.store.session import parse_url


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("sqlite:///offpolicy.db", True),
        ("sqlite:////var/lib/offpolicy-monitor/a~1.db", True),
        ("sqlite:////with a space/x.db", False),
        ("sqlite:///x.db?timeout=5", False),
        ("sqlite+pysqlite:///x.db", False),
        ("postgresql://host/offpolicy", False),
        ("postgresql://user:secret@host:5433/offpolicy?sslmode=require", False),
    ],
)
def test_the_address_of_a_database_is_shown_as_sqlalchemy_shows_it(url: str, plain: bool) -> None:
    assert (PLAIN_FILE.fullmatch(url) is not None) == plain
    assert without_password(url) == parse_url(url).render_as_string(hide_password=True)
    assert "secret" not in without_password(url)
