"""What an engine would carry from one instruction to the next; where files and processes are is said by a place."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.dockerfile.instructions import expanded, instructions

ROOT: Final = Path(__file__).resolve().parents[2]
HEALTHY_WITHIN: Final = 90.0  # seconds
ENDS_WITHIN: Final = 30.0


class Builder(ABC):
    """The state of a build: arguments, variables, directory, user, command and health check."""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.given = arguments
        self.everywhere: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.stages = 0
        #: Where on this machine the root of the image is.
        self.place = Path("/nowhere")
        self.directory = "/"
        self.user = "0"
        self.command: list[str] = []
        self.health_check: list[str] = []

    @abstractmethod
    def begin_stage(self) -> Mapping[str, str]:
        """Make a place like the base image, empty but for its Python; the variables that it has."""

    @abstractmethod
    def copy_stage(self, source: str, target: str) -> None:
        """Copy from the stage before."""

    @abstractmethod
    def run(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Run a step, and fail where it does."""

    @abstractmethod
    def start(self) -> "subprocess.Popen[bytes]":
        """The command of the image as a process."""

    @abstractmethod
    def healthy(self, service: "subprocess.Popen[bytes]") -> bool:
        """Whether the health check accepts it."""

    def path(self, name: str) -> Path:
        """Where on this machine a path of the image is, one that is relative below the working directory."""
        return self.place / Path(self.directory, name).relative_to("/")

    def build(self, text: str) -> None:
        """Carry out every instruction."""
        for name, arguments in instructions(text):
            print(f"{name} {arguments}", flush=True)
            getattr(self, f"do_{name.lower()}")(arguments)

    def do_arg(self, arguments: str) -> None:
        """An argument before the first stage is every stage's that names it again."""
        name, given, default = arguments.partition("=")
        if name in self.given or given or name in self.everywhere:
            self.arguments[name] = self.given.get(name, default if given else self.everywhere.get(name, ""))
        if not self.stages:
            self.everywhere = dict(self.arguments)

    def do_from(self, _: str) -> None:
        """A stage has what its base has, and nothing of the stage before."""
        self.stages += 1
        self.directory, self.user, self.arguments = "/", "0", {}
        self.variables = dict(self.begin_stage())

    def do_env(self, arguments: str) -> None:
        """Set variables, which may name others."""
        for pair in shlex.split(arguments):
            name, _, value = pair.partition("=")
            self.variables[name] = expanded(value, self.variables)

    def do_workdir(self, arguments: str) -> None:
        """Create and enter a folder."""
        self.directory = arguments
        self.path(arguments).mkdir(parents=True, exist_ok=True)

    def do_copy(self, arguments: str) -> None:
        """Copy what .dockerignore lets through, or from the stage before."""
        if arguments.startswith("--from="):
            _, stage, target = arguments.split()
            self.copy_stage(stage, target)
            return
        name, target = arguments.split()
        place = self.path(target)
        wanted = (ROOT / name).resolve()
        for source in context():
            if not wanted.is_relative_to(source) and not source.is_relative_to(wanted):
                continue
            taken = source if source.is_relative_to(wanted) else wanted
            # A folder gives what is in it; a file keeps its name where the target is a folder.
            below = taken.relative_to(wanted if wanted.is_dir() else wanted.parent)
            copy(taken, place / below)

    def do_run(self, arguments: str) -> None:
        """Run a step in a shell."""
        self.run(["sh", "-ec", arguments], self.variables | self.arguments)

    def do_user(self, arguments: str) -> None:
        """Whoever runs what follows."""
        self.user = arguments

    def do_volume(self, arguments: str) -> None:
        """A volume is a folder."""
        self.path(arguments).mkdir(parents=True, exist_ok=True)

    def do_expose(self, arguments: str) -> None:
        """Only describes the image."""
        return None

    def do_healthcheck(self, arguments: str) -> None:
        """Remember the check."""
        self.health_check = json.loads(arguments.split("CMD", 1)[1])

    def do_cmd(self, arguments: str) -> None:
        """Remember the command."""
        self.command = json.loads(arguments)

    def serve_and_check(self) -> None:
        """Start the command; return when the health check accepts it and it has ended as it was told."""
        service = self.start()
        try:
            deadline = time.monotonic() + HEALTHY_WITHIN
            while not self.healthy(service):
                if service.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the service was not healthy; its status is {service.poll()}")
                time.sleep(0.5)
        finally:
            if service.poll() is None:
                os.killpg(service.pid, signal.SIGTERM)
                service.wait(ENDS_WITHIN)


def context() -> list[Path]:
    """Files and folders that .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [path for path in (ROOT / line[1:] for line in lines if line.startswith("!")) if path.exists()]


def copy(source: Path, target: Path) -> None:
    """A file or a folder, without what .dockerignore leaves out of every folder."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    ignored = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines if line.startswith("**/")))
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)
