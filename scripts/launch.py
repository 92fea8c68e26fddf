"""`make run`: migrate the database, start the service, run the demo trainer against it; Ctrl-C ends both.

The service's log goes to .data/service.log, so that the terminal shows the demo's progress. When the demo has ended
the service stays. Each child has its own session: the terminal's Ctrl-C reaches this process alone, which then stops
the trainer first and the service after it.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / ".data"
LOG = DATA / "service.log"
COMMAND = str(Path(sys.executable).with_name("offpolicy-monitor"))
READY_WITHIN = 120.0  # seconds; a first import of torch from a cold disk is slow
STOPPED_WITHIN = 20.0  # seconds; the service answers what is in flight before it ends

Child = subprocess.Popen[bytes]


def main(demo_arguments: list[str]) -> int:
    """Run service and demo until the user ends them; return the exit status."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.default_int_handler)
    DATA.mkdir(exist_ok=True)
    os.environ.setdefault("OFFPOLICY_DATABASE_URL", f"sqlite:///{DATA / 'offpolicy.db'}")
    host, port = os.environ.get("OFFPOLICY_HOST", "127.0.0.1"), int(os.environ.get("OFFPOLICY_PORT", "8900"))
    refuse_taken_port(host, port)
    subprocess.run([COMMAND, "db", "upgrade"], check=True)
    children: list[Child] = []
    try:
        return run(f"http://{host}:{port}", demo_arguments, children)
    except KeyboardInterrupt:
        print("\nStopping ...", flush=True)
        return 0
    finally:
        stop(children)


def run(url: str, demo_arguments: list[str], children: list[Child]) -> int:
    """Start both in order, filling `children`; return only when the service has ended by itself."""
    with LOG.open("wb") as log:
        service = start(["serve"], children, stdout=log, stderr=subprocess.STDOUT)
    wait_until_ready(url, service)
    print(f"The service runs at {url} (metrics {url}/metrics, API {url}/docs, log {LOG.relative_to(ROOT)})", flush=True)
    demo = start(["demo", "--url", url, *demo_arguments], children)
    while service.poll() is None and demo.poll() is None:
        time.sleep(0.2)
    if service.poll() is None:
        ended = "has ended" if demo.returncode == 0 else f"failed with status {demo.returncode}"
        print(f"The demo {ended}. The service goes on at {url}; Ctrl-C ends it.", flush=True)
        service.wait()
    print(f"The service ended with status {service.returncode}:\n{last_lines()}", file=sys.stderr)
    return 1


def start(arguments: list[str], children: list[Child], **streams: Any) -> Child:
    """Start one of our commands in a session of its own."""
    child: Child = subprocess.Popen([COMMAND, *arguments], start_new_session=True, **streams)
    children.append(child)
    return child


def stop(children: list[Child]) -> None:
    """End the children, the last started first, waiting for each; a second Ctrl-C does not interrupt this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for child in reversed(children):
        if child.poll() is not None:
            continue
        child.send_signal(signal.SIGINT)
        try:
            child.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def refuse_taken_port(host: str, port: int) -> None:
    """Stop where something listens already: the demo would talk to it instead of to this service."""
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex((host, port)) == 0:
            sys.exit(f"Something listens on {host}:{port} already. Stop it, or take another port: make run PORT=8901")


def wait_until_ready(url: str, service: Child) -> None:
    """Return when /readyz answers 200; stop with the end of the log where the service ended or takes too long."""
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline and service.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit(f"The service did not start; the end of {LOG}:\n{last_lines()}")


def last_lines() -> str:
    """The end of the service's log."""
    return "\n".join(LOG.read_text(errors="replace").splitlines()[-20:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
