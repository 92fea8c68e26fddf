"""The manifests against the schemas of Kubernetes, old and new, without fields that these do not know."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "deploy" / "kubernetes"
VERSIONS: Final = ("1.28", "1.31", "1.34", "1.37")


def rendered() -> str:
    """The manifests as kubectl renders them, or where it is not installed as they are written."""
    if kubectl := shutil.which("kubectl"):
        made = subprocess.run([kubectl, "kustomize", FOLDER], check=True, capture_output=True, text=True)
        return str(made.stdout)
    print("kubectl is not installed: the manifests are checked as they are written")
    names: list[str] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    return "\n---\n".join((FOLDER / name).read_text() for name in names)


def check(python: Path, folder: Path) -> None:
    """Ends where a schema refuses something; `python` is of the environment that has the schemas."""
    manifests = folder / "manifests.yaml"
    manifests.write_text(rendered())
    validate = [str(python.with_name("kubernetes-validate")), "--strict", "--quiet", "--no-warn"]
    for version in VERSIONS:
        files = [manifests, FOLDER / "secret.example.yaml"]
        subprocess.run([*validate, "--kubernetes-version", version, *files], check=True, stdout=sys.stderr)
        print(f"Kubernetes {version}: accepted")
    subprocess.run([python, Path(__file__).with_name("custom.py"), manifests], check=True)
