"""One HTTP POST by the standard library: no redirects, a time limit, and an answer instead of an exception.

Knows nothing of alerts. Proxies are taken from the environment, as other programs do.
"""

import time
import urllib.error
import urllib.request
from email.message import Message
from http.client import HTTPException
from typing import IO, Final

from offpolicy_monitor._version import __version__
from offpolicy_monitor.notify.ports import Post, Reply
from offpolicy_monitor.retry import asked_for

#: Longest wait for a connection, and for each part of the answer, seconds.
TIMEOUT: Final = 10.0
HEADERS: Final = {"Content-Type": "application/json", "User-Agent": f"offpolicy-monitor/{__version__}"}


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its body."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def send(post: Post, timeout: float = TIMEOUT) -> Reply:
    """Post, and say what came of it; the body of the answer is not read."""
    request = urllib.request.Request(post.url, post.body, {**HEADERS, **post.headers}, method="POST")
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=timeout) as answer:
            return Reply(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.reason, asked_for(error.headers.get("Retry-After"), time.time()))
    except urllib.error.URLError as error:
        return Reply(None, str(error.reason))
    except (OSError, HTTPException) as error:
        return Reply(None, str(error) or type(error).__name__)
