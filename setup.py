"""The one build step that pyproject.toml cannot express: what of the checkout travels inside the wheel.

`migrations/`, `dashboards/` and `docs/runbook.md` stand at the root of the repository; in a wheel they are under
`offpolicy_monitor/_resources`. A checkout (editable install) uses them where they stand.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

RESOURCES = ("migrations", "dashboards", "docs/runbook.md")
DESTINATION = Path("offpolicy_monitor", "_resources")


def resource_files() -> list[Path]:
    """Every file among the resources that exist, relative to the repository root."""
    found = [path for name in RESOURCES for path in (Path(name), *sorted(Path(name).rglob("*")))]
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


class BuildWithResources(build_py):
    """Build the package, then copy the resources into it; lists them as sources, so that an sdist has them too."""

    def run(self) -> None:
        """Copy afresh: a migration that was renamed must not linger from an earlier build."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / DESTINATION
        shutil.rmtree(target, ignore_errors=True)
        for path in resource_files():
            (target / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / path)

    def get_source_files(self) -> list[str]:
        """What an sdist must carry."""
        return [*super().get_source_files(), *map(str, resource_files())]


setup(cmdclass={"build_py": BuildWithResources})
