"""Straight code: formulas over arrays as one function of plain numbers.

Of three gaps a call of numpy takes a hundred times what it computes. So formulas are followed once, with arrays that
write down what is done to each of their entries; what is written is compiled, and does the same operations of IEEE 754
in the same order, to the same bits. Knows no figure.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

Texts = NDArray[np.object_]
#: A function of a list of numbers.
Straight = Callable[[list[float]], list[float]]
_NAMES: Final = re.compile(r"\b[an]\d+\b")
#: What straight code raises where formulas over arrays come to NaN or infinity.
NO_NUMBER: Final = (ArithmeticError, ValueError)
#: The text of a number that is never there.
ABSENT: Final = "nan"
#: How operations are written. Of two equal numbers numpy takes the second, which tells where they are 0.0 and -0.0.
_WRITTEN: Final[Mapping[Any, str]] = {
    np.add: "{} + {}",
    np.subtract: "{} - {}",
    np.multiply: "{} * {}",
    np.divide: "{} / {}",
    np.negative: "-{}",
    np.absolute: "abs({})",
    np.sqrt: "sqrt({})",
    np.maximum: "{0} if {0} > {1} or {0} != {0} else {1}",
    np.minimum: "{0} if {0} < {1} or {0} != {0} else {1}",
    np.greater: "{} > {}",
    np.less: "{} < {}",
    np.bitwise_and: "{} and {}",
    np.isnan: "{0} != {0}",
    np.where: "{1} if {0} else {2}",
}


class NotStraightError(TypeError):
    """A formula does what cannot be written down."""


#: What a formula may raise that does so: it is computed as it stands.
NOT_STRAIGHT: Final = (TypeError, AttributeError)


class Code:
    """Lines of code, each of which names what an expression comes to; equal expressions are there once.

    The numbers that it takes are n0, n1, ...
    """

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._calls: dict[str, Any] = {"sqrt": math.sqrt, "nan": math.nan, "inf": math.inf}

    def operation(self, written: str, parts: Sequence[Texts]) -> "Written":
        """An operation on the entries of arrays."""
        together = np.broadcast(*parts)
        found = [self._named(written.format(*entries)) for entries in together]
        return Written(self, np.array(found, object).reshape(together.shape))

    def call(self, function: Any) -> str:
        """How a ufunc that calls a function of Python's is written; NotStraightError for another."""
        if function.types != ["O" * function.nin + "->O"]:
            raise NotStraightError(function.__name__)
        name = f"call{len(self._calls)}"
        self._calls[name] = function
        return f"{name}({', '.join(['{}'] * function.nin)})"

    def _named(self, expression: str) -> str:
        return self._lines.setdefault(expression, f"a{len(self._lines)}")

    def function(self, results: Sequence[str], positive: Sequence[str]) -> tuple[Straight, list[int]]:
        """What makes these results, and which numbers it takes, ascending.

        It raises ZeroDivisionError unless those `positive` are above 0.
        """
        needed, lines = {*_NAMES.findall(" ".join([*results, *positive]))}, []
        for expression, name in reversed(self._lines.items()):
            if name in needed:
                needed.update(_NAMES.findall(expression))
                lines.append(f" {name} = {expression}")
        taken = sorted(int(name[1:]) for name in needed if name.startswith("n"))
        text = [
            "def found(numbers):",
            f" [{', '.join(f'n{number}' for number in taken)}] = numbers",
            f" if not ({' and '.join(['True', *(f'{name} > 0' for name in positive)])}): raise ZeroDivisionError",
            *reversed(lines),
            f" return [{', '.join(results)}]",
        ]
        names = dict(self._calls)
        exec("\n".join(text), names)
        return names["found"], taken


class Written(NDArrayOperatorsMixin):
    """An array whose entries are texts of straight code, to formulas an array of float64."""

    def __init__(self, code: Code, texts: Texts) -> None:
        self._code, self.texts = code, texts

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> "Written":
        if method != "__call__" or options:
            raise NotStraightError(f"{ufunc.__name__}.{method}")
        return self._code.operation(_WRITTEN.get(ufunc) or self._code.call(ufunc), list(map(texts_of, inputs)))

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> "Written":
        if options:
            raise NotStraightError(function.__name__)
        if function is np.concatenate:
            return Written(self._code, np.concatenate(list(map(texts_of, *inputs))))
        if function not in _WRITTEN:
            raise NotStraightError(function.__name__)
        return self._code.operation(_WRITTEN[function], list(map(texts_of, inputs)))

    def __bool__(self) -> bool:
        raise NotStraightError("a branch on numbers")

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, chosen: Any) -> "Written":
        return Written(self._code, np.asarray(self.texts[chosen], object))

    def reshape(self, *shape: int) -> "Written":
        return Written(self._code, self.texts.reshape(*shape))

    def take(self, chosen: NDArray[np.intp], axis: int) -> "Written":
        return Written(self._code, self.texts.take(chosen, axis))

    def astype(self, dtype: type[np.float64]) -> "Written":
        return self


def texts_of(value: Any) -> Texts:
    """What is written of an argument; NotStraightError for an array, whose numbers are no constants."""
    if isinstance(value, Written):
        return value.texts
    if isinstance(value, int | float | np.number):
        return np.array(repr(float(value)), object)
    raise NotStraightError(type(value).__name__)
