"""The tuned sink: uvicorn, uvloop and httptools around an application that reads bodies and forgets them.

The fastest this stack can take bytes in; run as `python -m tests.benchmarks.sink PORT`.
"""

import sys
from typing import Any

import uvicorn
from offpolicy_monitor.server.memory import set_up_malloc


async def sink(scope: Any, receive: Any, send: Any) -> None:
    """Answer 200 after the last byte."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    set_up_malloc()
    uvicorn.run(
        sink, port=int(sys.argv[1]), loop="uvloop", http="httptools", ws="none", lifespan="off", log_config=None,
        access_log=False, server_header=False, date_header=False,
    )  # fmt: skip
