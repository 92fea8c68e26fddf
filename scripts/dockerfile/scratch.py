"""The instructions in a folder: every path that the image owns is moved below it, and the user stays who he is."""

import os
import re
import site
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.dockerfile.builder import Builder

OWNED: Final = re.compile(r"(?<![\w.])(?=/(src|dist|opt|var/lib)\b)")
#: With shared dependencies nothing is fetched: what is asked for has to be there. Bytecode is made of what is used.
OFFLINE: Final = {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1"}


class Scratch(Builder):
    """Stages share one folder, so that what one leaves is there for the next."""

    def __init__(self, arguments: Mapping[str, str], scratch: Path, share_dependencies: bool) -> None:
        super().__init__(arguments)
        self.place = scratch
        self.share_dependencies = share_dependencies

    def begin_stage(self) -> Mapping[str, str]:
        """`python` is a bare Python, or with shared dependencies this one."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        python = Path(sys.executable).parent if self.share_dependencies else Path(sys.base_prefix, "bin")
        path = f"{python}{os.pathsep}{os.environ['PATH']}"
        own = {"HOME": str(self.place), "TMPDIR": str(self.place), "PATH": path}
        return kept | own | (OFFLINE if self.share_dependencies else {})

    def copy_stage(self, source: str, target: str) -> None:
        """It is there already."""

    def do_env(self, arguments: str) -> None:
        """Paths are moved in what the Dockerfile says, not in what variables of this machine hold."""
        super().do_env(self.moved(arguments))

    def run(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """The image's user is not created on this machine, only its home."""
        if "useradd" in command[-1]:
            self.path(command[-1].split("--home-dir ")[1].split()[0]).mkdir(parents=True, exist_ok=True)
            return
        moved = [self.moved(word) for word in command]
        subprocess.run(moved, cwd=self.path(""), env=variables, check=True)
        if self.share_dependencies:
            for packages in self.place.glob("opt/*/lib/python*/site-packages"):
                (packages / "shared.pth").write_text("\n".join(site.getsitepackages()))

    def start(self) -> "subprocess.Popen[bytes]":
        """On a free port of the loopback, which nobody else reaches."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.variables |= {"OFFPOLICY_HOST": "127.0.0.1", "OFFPOLICY_PORT": port}
        return subprocess.Popen(self.command, cwd=self.place, env=self.variables, start_new_session=True)

    def healthy(self, service: "subprocess.Popen[bytes]") -> bool:
        """Ask from beside it."""
        asked = subprocess.run(self.health_check, env=self.variables, capture_output=True, check=False)
        return asked.returncode == 0

    def moved(self, text: str) -> str:
        """The text with the paths that the image owns moved below the folder."""
        return OWNED.sub(str(self.place), text)
