"""What the image installs is locked by hashes, in the versions that the tests ran with."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from scripts.licences import closure
from scripts.lock import GLIBC, LOCKS, OF_CUDA, platforms

ROOT = Path(__file__).resolve().parents[2]
LOCKED = ("service", "cuda")


def locked(name: str) -> Mapping[str, tuple[str, list[str]]]:
    """Package -> its version and the hashes of its files."""
    text = (ROOT / "deploy" / "locks" / f"{name}.txt").read_text().replace("\\\n", " ")
    entries = [line.split() for line in text.splitlines() if not line.startswith("#")]
    pins = [(first.partition("=="), hashes) for first, *hashes in entries]
    return {canonicalize_name(package): (version, hashes) for (package, _, version), hashes in pins}


def test_everything_that_the_service_needs_but_torch_is_locked_in_the_version_of_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    needed = closure("offpolicy-monitor", frozenset({"server", "postgres"})) - {"torch"}
    assert {"numpy", "psycopg-binary", "sqlalchemy", "setuptools"} <= needed
    assert {name: version for name, (version, _) in locked("service").items()} == {n: pinned[n] for n in needed}


@pytest.mark.parametrize("name", LOCKED)
def test_every_locked_package_has_the_hash_of_one_wheel_for_all_processors_or_one_for_each(name: str) -> None:
    entries = locked(name).values()
    assert [hashes for _, hashes in entries if not 1 <= len(set(hashes)) == len(hashes) <= 2] == []
    told = [digest for _, hashes in entries for digest in hashes]
    assert [text for text in told if not re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text)] == []


def test_what_is_locked_for_cuda_is_what_a_cuda_build_brings_and_nothing_of_the_service() -> None:
    names = set(locked("cuda"))
    assert {"triton", "nvidia-cublas", "cuda-toolkit"} <= names
    assert [name for name in names if not re.match(OF_CUDA, name)] == []
    assert names & set(locked("service")) == set()


def test_wheels_are_asked_for_by_every_tag_that_the_image_takes_the_newest_first() -> None:
    tags = list(platforms("x86_64"))
    assert tags[0] == f"manylinux_2_{GLIBC}_x86_64" and tags[-2:] == ["manylinux_2_5_x86_64", "manylinux1_x86_64"]
    assert tags.index("manylinux_2_17_x86_64") + 1 == tags.index("manylinux2014_x86_64")
    assert "bookworm" in (ROOT / "Dockerfile").read_text()


def test_no_lock_is_written_where_nobody_reads_it() -> None:
    read = (ROOT / "Dockerfile").read_text()
    assert {lock.file.stem for lock in LOCKS.values() if lock.hashes} == set(LOCKED)
    assert all(name in read for name in LOCKED) and "!deploy/locks" in (ROOT / ".dockerignore").read_text()
