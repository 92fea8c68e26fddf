"""Modules of a framework that is not installed, as far as an adapter asks anything of them."""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest


def stand_in(monkeypatch: pytest.MonkeyPatch, modules: Mapping[str, Mapping[str, Any]]) -> None:
    """Modules of these names with these contents, until the test ends."""
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
