"""The tree of errors that errors.py draws holds every error of the project, and no other."""

import importlib
import importlib.util
import pkgutil
import re

import offpolicy_monitor
from offpolicy_monitor import errors

#: Modules that need a library which the project does not install: what a real engine of the demo is made of.
NEEDS = {"demo.engines.ct2": "ctranslate2", "demo.engines.vllm": "vllm", "demo.engines.llama": "transformers"}


def is_importable(name: str) -> bool:
    if name.endswith(("__main__", "compiler")):  # what only a process of its own runs
        return False
    needed = NEEDS.get(name.removeprefix("offpolicy_monitor."))
    return needed is None or importlib.util.find_spec(needed) is not None


def below(error: type[Exception]) -> set[type[Exception]]:
    return {error}.union(*map(below, error.__subclasses__()))


def test_the_tree_of_errors_names_each_of_them_and_no_other() -> None:
    for module in pkgutil.walk_packages(offpolicy_monitor.__path__, "offpolicy_monitor."):
        if is_importable(module.name):
            importlib.import_module(module.name)
    rows = re.findall(r"^    (?:\W*── )?(\w+(?:, \w+)*)(?:  |$)", errors.__doc__ or "", re.MULTILINE)
    drawn = [name for row in rows for name in row.split(", ")]
    assert sorted(drawn) == sorted(error.__name__ for error in below(errors.OffpolicyMonitorError))
