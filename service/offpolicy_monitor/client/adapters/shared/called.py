"""Called: what a framework passed to a function of its own, by the names of that function's parameters.

For hooks that stand around a function which its callers give arguments by place or by name, as they like. Knows no
framework.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def called(function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one call by name, without those left to defaults; TypeError where they do not fit."""
    return dict(inspect.signature(function).bind(*arguments, **named).arguments)
