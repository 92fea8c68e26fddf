"""Run the steps of the Dockerfile by hand, for machines without a container engine: `python scripts/run_dockerfile.py`

Every absolute path that the Dockerfile writes to is moved below a scratch folder, the environment starts empty, and
each step runs as it stands, but for the user, who is neither created nor changed to. At the end the service runs on a
free loopback port and the HEALTHCHECK must accept it. With --share-dependencies the packages of this Python stand in
for the downloaded ones, which takes seconds and no network.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = re.compile(r"(?<![\w.])(?=/(src|dist|opt|var/lib)\b)")
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # pip reads 0 as "no isolation"
# pip refuses to bound what it installs for a build where it installs nothing.
UNISOLATED = {"PIP_BUILD_CONSTRAINT": ""}
HEALTHY_WITHIN = 90.0  # seconds


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, arguments) in order, with continued lines joined and comments dropped."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, arguments = line.strip().partition(" ")
            yield name.upper(), arguments.strip()


class Builder:
    """The state that one instruction hands to the next: variables, directory, command and health check."""

    def __init__(self, scratch: Path, share_dependencies: bool) -> None:
        self.scratch = scratch
        self.share_dependencies = share_dependencies
        self.base = {"HOME": str(scratch), "PATH": os.environ["PATH"]}
        self.base |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.variables: dict[str, str] = {}
        self.directory = scratch
        self.command: list[str] = []
        self.health_check: list[str] = []

    def moved(self, text: str) -> str:
        """The text with the paths that the image owns moved below the scratch folder."""
        return WRITTEN.sub(str(self.scratch), text)

    def do(self, name: str, arguments: str) -> None:
        """Carry out one instruction; those that only describe the image (ARG, USER, EXPOSE, VOLUME) do nothing here."""
        action = getattr(self, f"do_{name.lower()}", None)
        if action:
            print(f"{name} {arguments}", flush=True)
            action(self.moved(arguments))

    def do_from(self, _: str) -> None:
        """A stage starts with the variables of its base image, where `python` is a bare Python."""
        python = Path(sys.executable).parent if self.share_dependencies else Path(sys.base_prefix, "bin")
        self.variables = self.base | {"PATH": f"{python}{os.pathsep}{self.base['PATH']}"}
        self.directory = self.scratch

    def do_env(self, arguments: str) -> None:
        """Set variables, replacing $PATH."""
        for pair in shlex.split(arguments):
            name, _, value = pair.partition("=")
            self.variables[name] = value.replace("$PATH", self.variables["PATH"])

    def do_workdir(self, arguments: str) -> None:
        """Create and enter a folder."""
        self.directory = Path(arguments)
        self.directory.mkdir(parents=True, exist_ok=True)

    def do_copy(self, arguments: str) -> None:
        """Copy what .dockerignore lets through; a copy from another stage is there already."""
        if arguments.startswith("--from="):
            return
        lines = (ROOT / ".dockerignore").read_text().splitlines()
        ignored = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines if line.startswith("**/")))
        for source in (ROOT / line[1:] for line in lines if line.startswith("!")):
            target = self.directory / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            elif source.exists():
                shutil.copy(source, target)

    def do_run(self, arguments: str) -> None:
        """Run a step in a shell; the image's user is not created on this machine, only its home."""
        if arguments.startswith("useradd"):
            home = Path(arguments.split("--home-dir ")[1].split()[0])
            home.mkdir(parents=True, exist_ok=True)
            return
        offline = OFFLINE | UNISOLATED if self.share_dependencies else {}
        subprocess.run(["sh", "-ec", arguments], cwd=self.directory, env=self.variables | offline, check=True)
        if self.share_dependencies:
            for packages in self.scratch.glob("opt/*/lib/python*/site-packages"):
                (packages / "shared.pth").write_text("\n".join(site.getsitepackages()))

    def do_healthcheck(self, arguments: str) -> None:
        """Remember the check."""
        self.health_check = json.loads(arguments.split("CMD", 1)[1])

    def do_cmd(self, arguments: str) -> None:
        """Remember the command."""
        self.command = json.loads(arguments)

    def serve_and_check(self) -> None:
        """Start the command on a free port of the loopback; return when the health check accepts it."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        variables = self.variables | {"OFFPOLICY_HOST": "127.0.0.1", "OFFPOLICY_PORT": port}
        service = subprocess.Popen(self.command, cwd=self.scratch, env=variables, start_new_session=True)
        try:
            deadline = time.monotonic() + HEALTHY_WITHIN
            while subprocess.run(self.health_check, env=variables, capture_output=True, check=False).returncode != 0:
                if service.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the service was not healthy; its status is {service.poll()}")
                time.sleep(0.5)
        finally:
            if service.poll() is None:
                os.killpg(service.pid, signal.SIGTERM)
                service.wait(30)


def main() -> None:
    """Run all steps in a scratch folder, then the service and its health check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--share-dependencies", action="store_true", help="take the dependencies from this Python")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        builder = Builder(scratch, options.share_dependencies)
        for instruction, arguments in instructions((ROOT / "Dockerfile").read_text()):
            builder.do(instruction, arguments)
        builder.serve_and_check()
    print("healthy")


if __name__ == "__main__":
    main()
