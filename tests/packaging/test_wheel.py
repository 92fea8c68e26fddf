"""The wheel holds what it must, imports with numpy alone, says which extra a command needs, and serves."""

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.fixtures.service import clean_environment, running_service

ROOT = Path(__file__).resolve().parents[2]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "service", "migrations", "dashboards", "docs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from an sdist of a copy of the sources, so that the sdist is known to be complete."""
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        if (ROOT / name).exists():
            copy(ROOT / name, folder / name)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder)]
    subprocess.run(build, check=True, capture_output=True)
    return next((folder / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def base_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds the wheel and numpy, and nothing else."""
    return install(wheel, tmp_path_factory.mktemp("base"), shared=sorted(SITE_PACKAGES.glob("numpy*")))


@pytest.fixture(scope="module")
def server_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for an environment that sees all dependencies of this one, but not this project's sources."""
    programs = install(wheel, tmp_path_factory.mktemp("server"))
    next(programs.parent.glob("lib/python*/site-packages")).joinpath("shared.pth").write_text(f"{SITE_PACKAGES}\n")
    return programs


def install(wheel: Path, folder: Path, shared: list[Path] | None = None) -> Path:
    """Install the wheel without its dependencies into a new environment and link `shared` packages into it."""
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    # Bytecode is made of what is used.
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-compile", str(wheel)], check=True, capture_output=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for path in shared or []:
        (packages / path.name).symlink_to(path)
    return folder / "bin"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program with a clean environment; its output is text."""
    return subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)


def python(programs: Path, code: str) -> str:
    """What a piece of Python prints in an environment."""
    answer = run(programs / "python", "-I", "-c", code)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_the_wheel_carries_every_migration_and_dashboard_and_the_runbook(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = [folder for folder in ("migrations", "dashboards") if (ROOT / folder).exists()]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    expected = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert any(name.startswith("migrations/versions/") for name in expected)
    assert {name for name in expected if f"offpolicy_monitor/_resources/{name}" not in names} == set()
    assert "offpolicy_monitor/_resources/docs/runbook.md" in names


def test_the_wheel_carries_every_file_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "service" / "offpolicy_monitor"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "service").as_posix() for path in files} - names == set()


def test_the_wheel_holds_nothing_beside_the_package_and_its_metadata(wheel: Path) -> None:
    roots = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    version = wheel.name.split("-")[1]
    assert roots == {"offpolicy_monitor", f"offpolicy_monitor-{version}.dist-info"}


def test_the_base_install_imports_in_under_a_tenth_of_a_second(base_environment: Path) -> None:
    code = "import time; t = time.process_time(); import offpolicy_monitor; print(time.process_time() - t)"
    assert min(float(python(base_environment, code)) for _ in range(3)) < 0.1


@pytest.mark.parametrize("module", ["offpolicy_monitor", "offpolicy_monitor.wire.frame"])
def test_what_a_trainer_imports_needs_numpy_alone(base_environment: Path, module: str) -> None:
    code = f"import sys, {module}; print({{'torch', 'pydantic', 'sqlalchemy', 'fastapi'}} & set(sys.modules))"
    assert python(base_environment, code) == "set()"


@pytest.mark.parametrize(("kind", "name"), [("grafana", "offpolicy-run.json"), ("prometheus", "alerts.rules.yaml")])
def test_the_base_install_exports_dashboards_and_rules(
    base_environment: Path, tmp_path: Path, kind: str, name: str
) -> None:
    url = "https://monitor.example.com"
    answer = run(base_environment / "offpolicy-monitor", "export", kind, "--to", tmp_path, "--service-url", url)
    assert answer.returncode == 0, answer.stderr
    assert url in (tmp_path / name).read_text()


def test_importing_the_package_does_not_import_torch_where_it_is_installed(server_environment: Path) -> None:
    code = "import sys, offpolicy_monitor; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert python(server_environment, code) == "False False"


def test_the_base_install_shows_its_help(base_environment: Path) -> None:
    answer = run(base_environment / "offpolicy-monitor", "--help")
    assert answer.returncode == 0, answer.stderr
    assert all(command in answer.stdout for command in ("serve", "demo", "db", "methods", "settings"))


@pytest.mark.parametrize("command", [["serve"], ["db", "upgrade"], ["demo"]])
def test_a_command_names_the_extra_that_the_base_install_lacks(base_environment: Path, command: list[str]) -> None:
    answer = run(base_environment / "offpolicy-monitor", *command)
    assert answer.returncode not in (0, None)
    assert "offpolicy-monitor[server]" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_installed_wheel_serves(server_environment: Path, tmp_path: Path) -> None:
    location = python(server_environment, "import offpolicy_monitor; print(offpolicy_monitor.__file__)")
    assert location.startswith(str(server_environment.parent))
    with running_service(tmp_path, command=[str(server_environment / "offpolicy-monitor")]) as url:
        code = f"import urllib.request as u; print(*(u.urlopen('{url}' + p).status for p in ('/healthz', '/runbook')))"
        assert python(server_environment, code) == "200 200"
