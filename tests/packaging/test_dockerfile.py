"""The steps of the Dockerfile, run by hand in an empty folder, give a service that its own health check accepts."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.dockerfile.builder import ROOT, copy
from scripts.dockerfile.instructions import expanded, instructions
from scripts.dockerfile.scratch import Scratch

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_steps_of_the_dockerfile_give_a_healthy_service() -> None:
    script = [sys.executable, "-m", "scripts.dockerfile", "--share-dependencies"]
    run = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.stdout.splitlines()[-1:] == ["healthy"], run.stdout + run.stderr
    assert run.returncode == 0


def test_the_image_runs_as_nobody_in_particular_and_asks_for_tokens() -> None:
    last = DOCKERFILE[DOCKERFILE.rindex("FROM ") :]
    assert "\nUSER 10001\n" in last and "OFFPOLICY_AUTH=required" in last
    assert "insecure" not in DOCKERFILE


def test_everything_that_is_fetched_but_torch_has_to_have_its_hash() -> None:
    steps = [text for name, text in instructions(DOCKERFILE) if name == "RUN" for text in text.split("&&")]
    installed = [text for text in steps if "pip install" in text]
    assert len(installed) == 3
    fetched = [text for text in installed if "--no-index" not in text]
    assert ["--require-hashes" in text for text in fetched] == [True, False]
    assert fetched[1].split()[-1] == "torch" and "--constraint constraints.txt" in fetched[1]
    assert all("--no-deps" in text for text in installed)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ({}, 0, "install service.txt\ninstall https://download.pytorch.org/whl/cpu\n"),
        (
            {"VARIANT": "cuda"},
            0,
            "install service.txt\ninstall cuda.txt\ninstall https://download.pytorch.org/whl/cu130\n",
        ),
        ({"TORCH_INDEX": "https://index.example/x"}, 0, "install service.txt\ninstall https://index.example/x\n"),
        ({"VARIANT": "rocm"}, 1, ""),
    ],
)
def test_a_variant_chooses_the_locks_and_the_index_of_torch(
    arguments: dict[str, str], status: int, said: str, tmp_path: Path
) -> None:
    """The steps as they stand, with a `python` that says what it is asked for."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do case "$1" in --requirement) echo "install ${2##*/}" ;; '
        '--index-url) echo "install $2" ;; esac; shift; done\n'
    )
    python.chmod(0o755)
    builder = Scratch(arguments, tmp_path, share_dependencies=True)
    answers = []
    for name, text in instructions(DOCKERFILE):
        if name in ("FROM", "ARG"):
            getattr(builder, f"do_{name.lower()}")(text)
        if name == "RUN" and ("VARIANT" in text and "pip" in text):
            variables = {**builder.arguments, "PATH": f"{tmp_path}:/usr/bin:/bin"}
            answers.append(subprocess.run(["sh", "-ec", text], env=variables, capture_output=True, text=True))
            if answers[-1].returncode:
                break
    assert "".join(answer.stdout for answer in answers) == said
    assert answers[-1].returncode == status


def test_arguments_before_the_first_stage_are_of_the_stages_that_name_them(tmp_path: Path) -> None:
    builder = Scratch({"B": "given"}, tmp_path, share_dependencies=True)
    builder.build("ARG A=one\nARG B=two\nFROM ${A}\nARG B\nARG C\nENV HERE=/src/$B")
    assert builder.arguments == {"B": "given"}
    assert builder.variables["HERE"] == f"{tmp_path}/src/"
    builder.build("FROM again\nARG A")
    assert builder.arguments == {"A": "one"}


def test_instructions_are_joined_and_comments_are_left_out() -> None:
    text = "# one\nRUN a \\\n  # two\n    && b\n\nUSER 7"
    assert list(instructions(text)) == [("RUN", "a      && b"), ("USER", "7")]
    assert expanded("$A-${B}-$C", {"A": "1", "B": "2"}) == "1-2-"


def test_what_is_copied_is_what_dockerignore_lets_through(tmp_path: Path) -> None:
    builder = Scratch({}, tmp_path, share_dependencies=True)
    builder.build("FROM x\nWORKDIR /src\nCOPY deploy/locks deploy/locks\nCOPY constraints.txt .")
    found = {path.relative_to(tmp_path / "src").as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"deploy/locks/service.txt", "deploy/locks/cuda.txt", "constraints.txt"}
    (tmp_path / "from" / "__pycache__").mkdir(parents=True)
    copy(tmp_path / "from", tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []
