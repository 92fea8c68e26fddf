"""The tree of errors that errors.py draws holds every error of the project, and no other."""

import importlib
import pkgutil
import re

import offpolicy_monitor
from offpolicy_monitor import errors


def below(error: type[Exception]) -> set[type[Exception]]:
    return {error}.union(*map(below, error.__subclasses__()))


def test_the_tree_of_errors_names_each_of_them_and_no_other() -> None:
    for module in pkgutil.walk_packages(offpolicy_monitor.__path__, "offpolicy_monitor."):
        if not module.name.endswith(("__main__", "compiler")):  # what only a process of its own runs
            importlib.import_module(module.name)
    rows = re.findall(r"^    (?:\W*── )?(\w+(?:, \w+)*)(?:  |$)", errors.__doc__ or "", re.MULTILINE)
    drawn = [name for row in rows for name in row.split(", ")]
    assert sorted(drawn) == sorted(error.__name__ for error in below(errors.OffpolicyMonitorError))
