"""What the service installs is under accepted licences, and `make lint` says which is not."""

import time
import tomllib
from pathlib import Path

import pytest

from scripts import licences
from scripts.licences import EXTRAS, PROJECT, Accepted, closure, read, refused

ACCEPTED = Accepted(
    frozenset({"MIT", "BSD-3-Clause", "Apache-2.0 WITH LLVM-exception"}),
    {"one": "LGPL-3.0-only", "two": "A Licence (AL 1)"},
)


@pytest.mark.parametrize(
    ("name", "licence", "taken"),
    [
        ("any", "MIT", True),
        ("any", "mit", False),
        ("any", "MIT AND GPL-3.0-only", False),
        ("any", "MIT OR GPL-3.0-only", True),
        ("any", "GPL-3.0-only OR MIT AND BSD-3-Clause", True),
        ("any", "(GPL-3.0-only OR MIT) AND Zlib", False),
        ("any", "(GPL-3.0-only OR MIT) AND Apache-2.0 WITH LLVM-exception", True),
        ("any", "Apache-2.0", False),
        ("any", "LGPL-3.0-only", False),
        ("one", "LGPL-3.0-only", True),
        ("any", "(MIT", False),
        ("any", "A Licence (AL 1)", False),
        ("two", "A Licence (AL 1)", True),
        ("any", "", False),
    ],
)
def test_an_expression_is_accepted_where_all_that_has_to_be_is(name: str, licence: str, taken: bool) -> None:
    assert ACCEPTED.takes(name, licence) is taken


def test_of_several_classifiers_all_are_accepted_or_the_distribution_is_named() -> None:
    said = {"good": ["MIT"], "bad": ["MIT", "Other/Proprietary License"], "mute": [licences.NONE]}
    assert list(refused(list(said), ACCEPTED, lambda name: said[name])) == [
        "bad: Other/Proprietary License",
        f"mute: {licences.NONE}",
    ]


def test_what_is_installed_for_the_service_is_accepted_in_little_time() -> None:
    began = time.process_time()
    names = sorted(closure(PROJECT, EXTRAS))
    assert list(refused(names, read())) == []
    assert time.process_time() - began < 1.0
    assert {"psycopg", "torch", "uvicorn"} <= set(names) and "pyrefly" not in names


def test_a_licence_that_is_struck_out_names_those_that_are_under_it(tmp_path: Path) -> None:
    stricter = tmp_path / "licences.toml"
    stricter.write_text(licences.FILE.read_text().replace('"PSF-2.0",', ""))
    assert list(refused(sorted(closure(PROJECT, EXTRAS)), read(stricter))) == ["typing-extensions: PSF-2.0"]


def test_every_licence_of_single_distributions_has_a_reason() -> None:
    for entry in tomllib.loads(licences.FILE.read_text())["only"]:
        assert len(entry["why"]) > 20 and entry["packages"]
