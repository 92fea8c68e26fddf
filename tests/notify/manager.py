"""A real Alertmanager on a free port, which passes everything on to one webhook at once."""

import base64
import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fixtures.prometheus import running
from tests.fixtures.service import free_port
from tests.fixtures.tools import require_tool

CONFIGURATION = """
route: {{receiver: test, group_by: [alertname, run, severity], group_wait: 10ms, group_interval: 200ms}}
receivers: [{{name: test, webhook_configs: [{{url: "{url}", send_resolved: true}}]}}]
"""

#: A user's password as bcrypt keeps it, and the same for the header Authorization.
USERS = "basic_auth_users: {monitor: $2b$04$abcdefghijklmnopqrstuuLI5ZYefvaTAWJ5swj72N0TQyxmUyIh.}\n"
LOGIN = f"Basic {base64.b64encode(b'monitor:open: sesame').decode()}"


@contextmanager
def running_alertmanager(folder: Path, webhook: str, behind_login: bool = False) -> Iterator[str]:
    """Start it, wait until it is ready, yield its base URL; `behind_login` it answers nobody but LOGIN."""
    url = f"http://127.0.0.1:{free_port()}"
    (folder / "alertmanager.yaml").write_text(CONFIGURATION.format(url=webhook))
    arguments = {
        "config.file": folder / "alertmanager.yaml",
        "storage.path": folder / "alertmanager",
        "web.listen-address": url.removeprefix("http://"),
        "cluster.listen-address": "",
    }
    login = {"Authorization": LOGIN} if behind_login else {}
    if behind_login:
        (folder / "web.yaml").write_text(USERS)
        arguments["web.config.file"] = folder / "web.yaml"
    program = str(require_tool("prometheus-alertmanager"))
    command = [program, *(f"--{name}={value}" for name, value in arguments.items())]
    with running(command, folder / "alertmanager.log", f"{url}/-/ready", login):
        yield url


def alerts_of(url: str, login: str = "") -> list[dict[str, Any]]:
    """What it holds as active."""
    request = urllib.request.Request(f"{url}/api/v2/alerts", headers={"Authorization": login} if login else {})
    with urllib.request.urlopen(request, timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found
