"""Keys: the access tokens as this process knows them, so that no request asks the database.

They are read anew every REFRESH_SECONDS; while the database is away those that are known go on, and end when they
expire. Used on the event loop alone. Knows no HTTP.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal

from offpolicy_monitor.access import AccessToken, id_in, proves
from offpolicy_monitor.audit import LOG
from offpolicy_monitor.errors import Unavailable

Auth = Literal["auto", "required", "off"]
#: How often tokens are read, and how often it is written down which were used.
REFRESH_SECONDS: Final = 2.0
NOTE_SECONDS: Final = 60.0


class Keys:
    """`auth`: whether tokens are asked for; "auto": from the first one on that there ever was."""

    def __init__(self, auth: Auth, clock: Callable[[], float] = time.time) -> None:
        self._auth, self._clock = auth, clock
        self._tokens: dict[str, AccessToken] | None = None
        self._asked_for = auth == "required"
        self._used: dict[str, float] = {}

    def required(self, of_frames: bool = False) -> bool:
        """Whether a token is needed. Raises Unavailable while it is not known whether there is one.

        `of_frames`: for what holds nothing that is stored. It is not, then: a page can say that the store is away.
        """
        if self._auth == "off" or (of_frames and self._tokens is None and self._auth == "auto"):
            return False
        if self._tokens is None:
            message = "the access tokens could not be read yet, so nobody is let in"
            raise Unavailable(503, "store-unavailable", message)
        return self._asked_for

    def advice(self, public: bool) -> str | None:
        """What the operator should know at start; `public`: others are told an address of this service."""
        if self._tokens is None or self._auth == "off":
            return None
        if self._asked_for and not self._tokens:
            return "nobody is let in: make an access token with `offpolicy-monitor token create`"
        if public and not self._asked_for:
            return "no access token is asked for: whoever reaches the public address reads, changes and deletes"
        return None

    def learn(self, tokens: Sequence[AccessToken]) -> bool:
        """These are all that there are; whether that is news. A process that asked for tokens goes on asking."""
        before, self._tokens = self._tokens, {token.id: token for token in tokens}
        self._asked_for = self._asked_for or (self._auth == "auto" and bool(tokens))
        now = self._clock()
        for token in tokens if before is not None else ():
            was = before.get(token.id) if before else None
            if was is None or was.revoked_at != token.revoked_at:
                said = "token revoked" if token.revoked_at else "token created"
                LOG.info(f"{said}, which this service knows now", token=token.id, state=token.state(now))
        return before is not None and before.keys() != self._tokens.keys()

    def proved(self, text: str) -> AccessToken | None:
        """The token that a text proves, whether it is still valid or not; None where it proves none."""
        token = (self._tokens or {}).get(id_in(text) or "")
        return token if proves(text, token) else None

    def state(self, token: AccessToken) -> str:
        """What it is now: valid, expired, revoked."""
        return token.state(self._clock())

    def used(self, token: AccessToken) -> None:
        """It was used now."""
        self._used[token.id] = self._clock()

    def take_used(self) -> dict[str, float]:
        """When tokens were used last, of those that were since this was asked before."""
        used, self._used = self._used, {}
        return used

    async def note(self, write: Callable[[Mapping[str, float]], Awaitable[int]]) -> int:
        """Have written which were used since, and when; what cannot be written now is kept for the next time."""
        used = self.take_used()
        try:
            return await write(used) if used else 0
        except BaseException:
            self._used = used | self._used
            raise

    def admits(self, token: AccessToken | None) -> bool:
        """Whether who came with this token, or with none, may still stay."""
        if token is None:
            return not self.required()
        known = (self._tokens or {}).get(token.id)
        return known is not None and self.state(known) == "valid"
