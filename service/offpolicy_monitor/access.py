"""Access tokens: what one looks like, what it allows, and whether what was sent proves it.

`opm_<id>_<secret>`: the id names the token in lists and logs; of the secret its SHA-256 alone is kept, which needs no
salt, since the secret is random. Knows no database and no HTTP.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

Scope = Literal["ingest", "read", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: What each scope is for; `admin` allows the others too.
MEANING: Final[dict[Scope, str]] = {
    "ingest": "post batches, and say of a run what its trainer says",
    "read": "read runs, figures, alerts, events and pages",
    "admin": "everything, changing and deleting runs too",
}
Equal = Callable[[bytes, bytes], bool]
State = Literal["valid", "expired", "revoked"]
ANY_RUN: Final = "*"
#: What names runs: a run's own name, in which `*` stands for any letters and `?` for one.
RUNS: Final = "[A-Za-z0-9._*?-]{1,128}"
ID_BYTES, SECRET_BYTES = 6, 24
LONGEST_NOTE: Final = 200
_TEXT: Final = re.compile(f"opm_([0-9a-f]{{{2 * ID_BYTES}}})_([0-9a-f]{{{2 * SECRET_BYTES}}})")
#: Stands for the digest of a token that is not there, so that one takes as long as the other.
_NOBODY: Final = bytes(32)


@dataclass(frozen=True)
class AccessToken:
    """One token as it is kept. Times are unix seconds; None: never."""

    id: str
    digest: bytes
    scopes: frozenset[str]
    runs: str
    note: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def state(self, now: float) -> State:
        """Whether it is taken at that time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"

    def has(self, scopes: Collection[str]) -> bool:
        """Whether one of these scopes is its own; `admin` is all of them."""
        return "admin" in self.scopes or not self.scopes.isdisjoint(scopes)

    def sees(self, run: str) -> bool:
        """Whether it is for this run."""
        return self.runs == ANY_RUN or compiled(self.runs).fullmatch(run) is not None


def made(
    scopes: Collection[Scope], runs: str, note: str, now: float, expires_at: float | None = None
) -> tuple[AccessToken, str]:
    """A new token, and its text, which nobody has but who gets it from here."""
    name, secret = secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES)
    token = AccessToken(name, _digest(secret), frozenset(scopes), runs, note, now, expires_at)
    return token, f"opm_{name}_{secret}"


def id_in(text: str) -> str | None:
    """The id in what looks like a token; None where it is none."""
    found = _TEXT.fullmatch(text)
    return None if found is None else found[1]


def proves(text: str, token: AccessToken | None, equal: Equal = hmac.compare_digest) -> bool:
    """Whether a text is that token's own, by `equal` in constant time; with None it never is, and takes as long."""
    found = _TEXT.fullmatch(text)
    digest = _digest(found[2] if found else text)
    same = equal(digest, _NOBODY if token is None else token.digest)
    return same and found is not None and token is not None and found[1] == token.id


@lru_cache(256)
def compiled(runs: str) -> re.Pattern[str]:
    """A pattern of runs as a regular expression, which fits the whole name."""
    return re.compile(expression(runs))


def expression(runs: str) -> str:
    """The same as text, in a form that Python and PostgreSQL read alike."""
    parts = {"*": ".*", "?": ".", ".": "[.]"}
    return f"^{''.join(parts.get(letter, letter) for letter in runs)}$"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
