"""What compiled code needs with every batch of a part, in one object that is made once.

Of a tuple numba takes every array out of Python at each call, which is 0.2 µs for each of seventy and more; of this
object it takes an address. Python code makes it and passes it on, and reads nothing of it.
"""

from typing import Any

from numba import njit, types
from numba.experimental import structref

from offpolicy_monitor.fused.token import PASS


@structref.register
class HeldType(types.StructRef):
    """The type of Held to numba."""


class Held(structref.StructRefProxy):
    """plan: Plan; tokens and sequences: the Bounds of rules on either; ahead: of those that look ahead (fused.ahead);
    block: Block; result: Result."""


_FIELDS = ["plan", "tokens", "sequences", "ahead", "block", "result"]
# Not define_proxy: it makes Held callable from Python by code of its own, which is compiled in every process anew.
structref.define_constructor(Held, HeldType, _FIELDS)
structref.define_boxing(HeldType, Held)


@njit(**PASS)
def hold(plan: Any, tokens: Any, sequences: Any, ahead: Any, block: Any, result: Any) -> Any:
    """The Held of these."""
    return Held(plan, tokens, sequences, ahead, block, result)
