"""InPlaceOf: what stands where a framework has an object of its own, and is that object but for what it is there for.

Knows no framework.
"""

from typing import Any


class InPlaceOf:
    """Has every attribute of `of`, since frameworks choose their way by them; may be pickled with it."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __getattr__(self, name: str) -> Any:
        if name == "of" or name.startswith("__"):  # while it is unpickled, before it has anything to ask
            raise AttributeError(name)
        return getattr(self.of, name)
