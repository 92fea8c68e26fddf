"""The scenarios: every module here has a tuple SCENARIOS."""

from importlib import import_module
from pkgutil import iter_modules

from tests.chaos.scenario import Scenario


def scenarios() -> list[Scenario]:
    """All of them, by the names of their modules."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return [scenario for module in modules for scenario in module.SCENARIOS]
