"""The webhook: one signed POST for each alert that becomes active, and one when it is resolved.

Exactly the deliveries that the receiver has not taken yet are sent, again and again until it answers; the source keeps
what was told, so a restart repeats nothing. Knows the payload and its signature.
"""

import hashlib
import hmac
import json
import math
import uuid
from typing import Any, Final

import structlog

from offpolicy_monitor.notify.backoff import Backoff
from offpolicy_monitor.notify.ports import Alert, Ports, Post, Reply
from offpolicy_monitor.notify.words import page
from offpolicy_monitor.timestamps import timestamp

log = structlog.get_logger("offpolicy_monitor.notify")

#: Alerts asked for at once.
BATCH: Final = 100
COPIED: Final = (
    "state", "alert", "severity", "run", "value", "peak", "threshold", "since_step", "last_step", "active_step",
    "resolved_step", "breach_steps", "half", "inhibited_by", "evidence", "expression", "summary", "runbook",
)  # fmt: skip
TIMES: Final = ("started_at", "active_at", "resolved_at")
#: The backoff's key of the receiver as a whole: where it does not answer, no other delivery fares better.
RECEIVER: Final = "receiver"


class Webhook:
    """A receiver of deliveries, in order; `secret` signs them, None leaves them unsigned.

    `authorization` is sent as the header has it.
    """

    kind = "webhook"

    def __init__(
        self,
        url: str,
        secret: str | None,
        public_url: str,
        backoff: Backoff | None = None,
        authorization: str | None = None,
    ) -> None:
        self._headers = {"Authorization": authorization} if authorization else {}
        self._url, self._secret, self._public_url = url, secret, public_url
        self._backoff = backoff or Backoff()
        # Taken by the receiver, but not yet kept by the source: must not be sent again when the source is back.
        self._taken: set[str] = set()

    def deliver(self, ports: Ports) -> float:
        """Send each delivery that is due; answers the seconds until the next one is, or infinity."""
        wait = self._backoff.wait(RECEIVER, ports.elapsed())
        if wait:
            return wait
        alerts = ports.source.untold(BATCH)
        self._backoff.keep({RECEIVER, *(delivery_id(alert, self._public_url) for alert in alerts)})
        waits = []
        for alert in alerts:
            wait = self._deliver(alert, ports)
            waits.append(wait)
            if self._backoff.wait(RECEIVER, ports.elapsed()):
                break
        return min([wait for wait in waits if wait], default=0.0 if len(alerts) == BATCH else float("inf"))

    def _deliver(self, alert: Alert, ports: Ports) -> float:
        """Send one delivery if it is due; answers the seconds until it may be tried again, 0 where it is told."""
        delivery = delivery_id(alert, self._public_url)
        if wait := self._backoff.wait(delivery, ports.elapsed()):
            return wait
        if delivery not in self._taken:
            reply = ports.send(self._post(alert, ports.source.message(alert), delivery, ports.clock()))
            ports.count(self.kind, reply.outcome)
            if reply.outcome == "failed":
                return self._put_off(delivery, reply, ports.elapsed())
            if reply.outcome == "refused":
                log.error("the webhook refused an alert", delivery=delivery, status=reply.status, **_names(alert))
            self._backoff.passed(RECEIVER)
            self._taken.add(delivery)
        ports.source.mark_told(alert["id"], alert["state"])
        self._taken.discard(delivery)
        return 0.0

    def _put_off(self, delivery: str, reply: Reply, now: float) -> float:
        """One delivery that failed waits by itself; a receiver that is away or busy is left alone with all of them."""
        away = reply.status is None or reply.status == 429 or reply.retry_after is not None
        delay = self._backoff.failed(RECEIVER if away else delivery, now, reply.retry_after)
        log.warning(
            "the webhook did not take an alert", status=reply.status, reason=reply.reason, again_in=round(delay, 1)
        )
        return delay

    def _post(self, alert: Alert, message: str | None, delivery: str, now: float) -> Post:
        body = json.dumps(payload(alert, message, delivery, self._public_url), allow_nan=False).encode()
        signed_at = str(int(now))
        headers = {**self._headers, "X-Offpolicy-Delivery": delivery, "X-Offpolicy-Timestamp": signed_at}
        if self._secret:
            headers["X-Offpolicy-Signature"] = signature(self._secret, signed_at, body)
        return Post(self._url, body, headers)


def delivery_id(alert: Alert, public_url: str) -> str:
    """The same for the same alert and state, also after a restart; another for another service or database.

    Another, too, where it has come back since it was told as over.
    """
    name = f"{public_url}/{alert['id']}/{alert['started_at']}/{alert['state']}/{alert['resolved_step']}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def payload(alert: Alert, message: str | None, delivery: str, public_url: str) -> dict[str, Any]:
    """The body of a delivery."""
    return {
        "version": 1,
        "id": delivery,
        **{name: _finite(alert[name]) for name in COPIED},
        **({"message": message} if message else {}),
        "page": page(public_url, alert),
        **{name: timestamp(alert[name]) for name in TIMES},
    }


def signature(secret: str, signed_at: str, body: bytes) -> str:
    """`sha256=` and the HMAC-SHA256, in hex, of the unix seconds of signing, a dot, and the body as sent."""
    return "sha256=" + hmac.new(secret.encode(), signed_at.encode() + b"." + body, hashlib.sha256).hexdigest()


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _names(alert: Alert) -> dict[str, Any]:
    return {name: alert[name] for name in ("alert", "severity", "run", "state")}
