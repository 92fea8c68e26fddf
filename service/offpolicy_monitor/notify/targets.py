"""Who is told, by settings: at most one webhook and any number of Alertmanagers."""

from collections.abc import Iterable

from offpolicy_monitor.notify.alertmanager import Alertmanager
from offpolicy_monitor.notify.ports import Target
from offpolicy_monitor.notify.webhook import Webhook


def targets(
    public_url: str,
    webhook_url: str | None = None,
    webhook_secret: str | None = None,
    alertmanager_urls: Iterable[str] = (),
    interval: float = 60.0,
    webhook_authorization: str | None = None,
    alertmanager_authorization: str | None = None,
) -> list[Target]:
    """A target for each address; `public_url` is where people reach this service.

    Each is sent the header Authorization that it is given.
    """
    found: list[Target] = [
        Alertmanager(url, interval, public_url, authorization=alertmanager_authorization) for url in alertmanager_urls
    ]
    if webhook_url is not None:
        found.append(Webhook(webhook_url, webhook_secret, public_url, authorization=webhook_authorization))
    return found
