"""Calls of C functions out of compiled loops, by address.

A ctypes function in a compiled loop becomes a constant of its machine code, which is then of no use to the next
process. An address that is an argument leaves the code the same for every process, so that numba can store it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numba as nb
from numba.core import cgutils
from numba.extending import intrinsic


def address_of(library: ctypes.CDLL, name: str) -> int:
    """Where the C function `name` of a loaded library is, for `call`.

    Raises
    ------
    AttributeError
        If the library has none of this name.
    """
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


def compiled(loop: Callable[..., Any]) -> Any:
    """Compile a loop without the GIL, and store it beside its file for the next process."""
    return nb.njit(nogil=True, cache=True)(loop)


def _emitted(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


@_emitted
def call(typing: Any, result: Any, address: Any, arguments: Any) -> Any:
    """In compiled loops: call the C function at `address`.

    `arguments`: a tuple; each is passed as the type that it has, so an ``int`` has to be an ``np.int32``. `result`: the
    type that the function gives (as ``np.int32``), or None.
    """
    gives = nb.none if isinstance(result, nb.types.NoneType) else result.instance_type

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        given = cgutils.unpack_tuple(builder, values[2], len(arguments))
        back = cgutils.ir.VoidType() if gives == nb.none else context.get_value_type(gives)
        kind = cgutils.ir.FunctionType(back, [value.type for value in given])
        found = builder.call(builder.inttoptr(values[1], kind.as_pointer()), given)
        return context.get_dummy_value() if gives == nb.none else found

    return gives(result, address, arguments), emit
