"""How loops are compiled: by numba, without the interpreter's lock, and cached beside their file.

Also what compiled loops can do beyond plain Python: read and copy bytes at any position, and call C functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import numba as nb
from numba.core import cgutils
from numba.extending import intrinsic

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """Compile a loop."""
    found: Loop = nb.njit(nogil=True, cache=True)(loop)
    return found


def inlined(expression: Loop) -> Loop:
    """Compile an expression into each loop that uses it."""
    found: Loop = nb.njit(nogil=True, cache=True, inline="always")(expression)
    return found


def _emitted(function: Callable[..., Any]) -> Any:
    """Have `function` emit the machine code of a call."""
    return intrinsic(function)


@_emitted
def load_word(typing: Any, data: Any, at: Any) -> Any:
    """The eight bytes from data[at] on as one uint64, the first one lowest; `at` is neither aligned nor checked."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _pointer(context, builder, signature, arguments, 0)
        return builder.load(builder.bitcast(place, cgutils.ir.IntType(64).as_pointer()), align=1)

    return nb.uint64(data, nb.uint64), emit


@_emitted
def copy_bytes(typing: Any, data: Any, first: Any, size: Any, out: Any, at: Any) -> Any:
    """data[first:first + size] to out[at:], unchecked. (A function instead would count references for every row.)"""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (_pointer(context, builder, signature, arguments, of) for of in (0, 3))
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)

    return nb.void(data, nb.uint64, nb.uint64, out, nb.uint64), emit


@_emitted
def store_line(typing: Any, lines: Any, line: Any, out: Any, at: Any) -> Any:
    """The 64 bytes from lines[line] on to out[at:], past the caches, unchecked; both places are aligned to 64 bytes.

    Whoever reads them in another thread or process has to wait for `finish_stores`.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = cgutils.ir.VectorType(cgutils.ir.IntType(64), 8).as_pointer()
        source, target = (_pointer(context, builder, signature, arguments, of) for of in (0, 2))
        line = builder.load(builder.bitcast(source, words), align=64)
        store = builder.store(line, builder.bitcast(target, words), align=64)
        hint = builder.module.add_metadata([cgutils.ir.Constant(cgutils.ir.IntType(32), 1)])
        store.set_metadata("nontemporal", hint)

    return nb.void(lines, nb.uint64, out, nb.uint64), emit


@_emitted
def item_size(typing: Any, array: Any) -> Any:
    """Bytes of an array's values, as a constant that the compiler can calculate with; `itemsize` is loaded instead."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_constant(nb.uint64, context.get_abi_sizeof(context.get_data_type(array.dtype)))

    return nb.uint64(array), emit


@_emitted
def finish_stores(typing: Any) -> Any:
    """Have all stores of this thread visible to others before anything that comes after."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return nb.void(), emit


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, of: int) -> Any:
    """A pointer into the array that is argument `of`; the argument after it is the position."""
    array = context.make_array(signature.args[of])(context, builder, arguments[of])
    return builder.gep(array.data, [arguments[of + 1]])


def address_of(library: ctypes.CDLL, name: str) -> int:
    """The address of the C function `name` of a loaded library, for `call`.

    Raises
    ------
    AttributeError
        If the library has no such function.
    """
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


@_emitted
def call(typing: Any, result: Any, address: Any, arguments: Any) -> Any:
    """Call the C function at `address`.

    A ctypes function in a compiled loop becomes a constant of its machine code, which another process cannot use. With
    the address as an argument the code is the same for every process, so that numba can store it.

    `arguments`: a tuple; each is passed under its own type, so a C ``int`` has to be an ``np.int32``. `result`: the
    type of the function's result (as ``np.int32``), or None.
    """
    returns = nb.none if isinstance(result, nb.types.NoneType) else result.instance_type

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        given = cgutils.unpack_tuple(builder, values[2], len(arguments))
        back = cgutils.ir.VoidType() if returns == nb.none else context.get_value_type(returns)
        kind = cgutils.ir.FunctionType(back, [value.type for value in given])
        found = builder.call(builder.inttoptr(values[1], kind.as_pointer()), given)
        return context.get_dummy_value() if returns == nb.none else found

    return returns(result, address, arguments), emit
