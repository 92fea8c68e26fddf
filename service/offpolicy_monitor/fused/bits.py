"""Float32 numbers by their bit patterns, and comparisons that compilers turn into one instruction.

numba's own min and max take care of NaN, which no loop survives as vector code; what comes here is finite.
"""

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic as _intrinsic

#: Without its type: an intrinsic is called without the first of its arguments.
intrinsic: Final[Any] = _intrinsic

#: The bits of a magnitude, and the least of those that stand for no finite number.
MAGNITUDE_BITS, NOT_FINITE = np.int32(0x7FFFFFFF), np.int32(0x7F800000)

#: Counts that are looked at together: as many as an int64 has bits.
STRIDE: Final = 64

_INLINE: Final[dict[str, Any]] = {"error_model": "numpy", "_nrt": False, "forceinline": True}
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_PAIR: Final[Any] = types.Tuple((types.float32, types.float32))
_MANTISSA = 23
_ONE = 0x3F800000  # the pattern of 1.0
_ROOT_HALF = 0x3F3504F3  # of sqrt(1/2)
_FAST = ("nnan", "nsz")


def _selection(operator: str) -> Any:
    def typed(typing: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            chosen = builder.fcmp_ordered(operator, *arguments, flags=_FAST)
            return builder.select(chosen, *arguments, flags=_FAST)

        return types.float32(types.float32, types.float32), generate

    return intrinsic(typed)


lesser, greater = _selection("<"), _selection(">")


@intrinsic
def pattern(typing: Any, value: Any) -> Any:
    """The bits of a float32 as int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _I32)

    return types.int32(types.float32), generate


@njit(error_model="numpy", forceinline=True)
def finite(value: Any) -> Any:
    """Whether a float32 is; also in code that takes all its numbers to be."""
    return (pattern(value) & MAGNITUDE_BITS) < NOT_FINITE


def _read(width: int) -> Any:
    def typed(typing: Any, octets: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.gep(array.data, [arguments[1]])
            found = builder.load(builder.bitcast(address, ir.IntType(8 * width).as_pointer()))
            found.align = 1
            return found if width == _I64.width // 8 else builder.zext(found, _I64)

        return types.int64(octets, types.int64), generate

    return intrinsic(typed)


#: One, two or eight bytes of an array of bytes, from an index on, as int64.
octet, pair, word = _read(1), _read(2), _read(8)


@intrinsic
def _filled(typing: Any, counts: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        several = ir.VectorType(_I32, STRIDE)
        found = builder.load(builder.bitcast(builder.gep(array.data, [arguments[1]]), several.as_pointer()))
        found.align = _I32.width // 8
        return builder.bitcast(builder.icmp_signed("!=", found, ir.Constant(several, None)), _I64)

    return types.int64(counts, types.int64), generate


@njit(**_INLINE)
def filled(counts: Any, begin: Any, end: Any) -> Any:
    """Which of the first STRIDE int32 counts from `begin` to `end` are not zero, in the bits of an int64, the first in
    the lowest. All STRIDE are read, and must be there."""
    found = _filled(counts, begin)
    return found if end - begin >= STRIDE else found & ((1 << (end - begin)) - 1)


@intrinsic
def lowest(typing: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set of an int64, of which one is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def power_of_two(typing: Any, shifted: Any) -> Any:
    """2**n from n + 1.5 * 2**23, whose last bits are those of n."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _I32)
        bits = builder.add(builder.shl(bits, ir.Constant(_I32, _MANTISSA)), ir.Constant(_I32, _ONE))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.float32), generate


@intrinsic
def exponent_and_mantissa(typing: Any, value: Any) -> Any:
    """(n, m) of value = m 2**n with m in [sqrt(1/2), sqrt(2)), both float32; of positive normal numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _I32)
        above = builder.sub(bits, ir.Constant(_I32, _ROOT_HALF))
        exponent = builder.ashr(above, ir.Constant(_I32, _MANTISSA))
        rest = builder.sub(bits, builder.shl(exponent, ir.Constant(_I32, _MANTISSA)))
        parts = [builder.sitofp(exponent, ir.FloatType()), builder.bitcast(rest, ir.FloatType())]
        return context.make_tuple(builder, signature.return_type, parts)

    return _PAIR(types.float32), generate


@intrinsic
def top_bits(typing: Any, magnitude: Any, shift: Any, base: Any) -> Any:
    """(bits >> shift) - base as int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, shift_, base_ = arguments
        bits = builder.lshr(builder.bitcast(value, _I32), builder.trunc(shift_, _I32))
        return builder.sub(bits, builder.trunc(base_, _I32))

    return types.int32(types.float32, types.int64, types.int64), generate


@intrinsic
def signed_like(typing: Any, number: Any, value: Any) -> Any:
    """The int32, negated where the sign bit of the float32 is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sign = builder.ashr(builder.bitcast(arguments[1], _I32), ir.Constant(_I32, 31))
        return builder.sub(builder.xor(arguments[0], sign), sign)

    return types.int32(types.int32, types.float32), generate
