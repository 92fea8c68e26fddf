"""The instructions as they stand, in roots of Debian: needs debootstrap, root, and what a build fetches.

Each stage has a root of its own, and the machine's network while it is built. The service at the end has no network but
a loopback of its own, no capabilities, the image's user, and a root of which only the volume can be written.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.dockerfile.builder import Builder

RELEASE: Final = "bookworm"
#: Beside the smallest Debian: what the official image of Python has, and what Debian splits off.
PACKAGES: Final = "ca-certificates,python3,python3-venv,python3-pip"
#: What says how this machine reaches the network.
OF_NETWORK: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Mounts, in a namespace that goes with the process, then the command in its root.
ENTER: Final = """\
root=$1 directory=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
for folder in $SHARED; do mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; done
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
if [ -n "$READ_ONLY" ]; then
    mount -t tmpfs tmpfs "$root/tmp"
    for volume in $READ_ONLY; do mount --bind "$root$volume" "$root$volume"; done
    mount -o remount,bind,ro "$root"
    ip link set lo up
fi
unset SHARED READ_ONLY
exec chroot "$root" sh -c 'cd "$0" && exec "$@"' "$directory" "$@"
"""


class Root(Builder):
    """Stages are folders beside the first one, `base`."""

    def __init__(self, arguments: Mapping[str, str], folder: Path) -> None:
        super().__init__(arguments)
        self.folder = folder
        self.volumes: list[str] = []
        self.before = self.place
        self.pip = dict(settings_of_pip())
        self.shared = list(places_of(self.pip.values()))

    def begin_stage(self) -> Mapping[str, str]:
        """A copy of the base, which is made once."""
        base = self.folder / "base"
        if not base.exists():
            make_base(base)
        self.before, self.place = self.place, self.folder / f"stage-{self.stages}"
        subprocess.run(["rm", "-rf", "--one-file-system", self.place], check=True)
        subprocess.run(["cp", "--archive", base, self.place], check=True)
        for name in OF_NETWORK:
            shutil.copy(name, f"{self.place}{name}")
        return {"PATH": PATH, "HOME": "/root"}

    def copy_stage(self, source: str, target: str) -> None:
        """From the root before, with owners and modes."""
        place = self.path(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--archive", f"{self.before}{source}", place], check=True)

    def run(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """As root, with the network of this machine and the settings of its pip."""
        entered = ["unshare", "--mount", "sh", "-euc", ENTER, "enter", str(self.place), self.directory, *command]
        shared = {"SHARED": " ".join(self.shared), "READ_ONLY": ""}
        subprocess.run(entered, env={**self.pip, **variables, **shared}, check=True)

    def do_volume(self, arguments: str) -> None:
        """Volumes are what can be written."""
        super().do_volume(arguments)
        self.volumes.append(arguments)

    def start(self) -> "subprocess.Popen[bytes]":
        """As the image's user, on a loopback of its own, in a root that is read-only."""
        entered = ["unshare", "--mount", "--net", "sh", "-euc", ENTER, "enter", str(self.place), "/"]
        alone = {"SHARED": "", "READ_ONLY": " ".join(self.volumes)}
        command = [*entered, *self.as_user(), *self.command]
        return subprocess.Popen(command, env={**self.of_user(), **alone}, start_new_session=True)

    def healthy(self, service: "subprocess.Popen[bytes]") -> bool:
        """Ask from beside it: in its root, as its user."""
        inside = ["nsenter", "--target", str(service.pid), "--mount", "--net", "--root", "--wd"]
        asked = subprocess.run([*inside, *self.as_user(), *self.health_check], env=self.of_user(), capture_output=True)
        return asked.returncode == 0

    def of_user(self) -> dict[str, str]:
        """Variables of the image, and the home that its user has."""
        lines = (self.place / "etc/passwd").read_text().splitlines()
        home = next(line.split(":")[5] for line in lines if line.split(":")[2] == self.user)
        return {**self.variables, "HOME": home}

    def as_user(self) -> list[str]:
        """Become the image's user, for good."""
        lines = (self.place / "etc/passwd").read_text().splitlines()
        group = next(line.split(":")[3] for line in lines if line.split(":")[2] == self.user)
        ids = ["--reuid", self.user, "--regid", group, "--clear-groups"]
        return ["setpriv", *ids, "--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all"]


def make_base(base: Path) -> None:
    """The smallest Debian with a Python that is found where the official image has it."""
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(base)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")


def settings_of_pip() -> Iterator[tuple[str, str]]:
    """Variable -> value of everything that pip of this machine is set to, which a root knows nothing of."""
    listed = subprocess.run(["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    for section, name, value in re.findall(r"^([\w:]+)\.\.?([\w-]+)='(.*)'$", listed.stdout, re.MULTILINE):
        if section in ("global", "install", ":env:"):
            yield f"PIP_{name.upper().replace('-', '_')}", value.replace("\\n", " ")


def places_of(values: Iterable[str]) -> Iterator[str]:
    """Folders of this machine that values name, such as an index that is a folder."""
    for value in values:
        for found in re.findall(r"(?:^|\s|file://)(/[\w./-]+)", value):
            if os.path.isdir(found):
                # An index that is a folder names files beside it.
                yield found.removesuffix("/simple")
