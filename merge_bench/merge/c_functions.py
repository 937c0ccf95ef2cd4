"""Calls of C functions from compiled loops, by address.

A ctypes function in a compiled loop becomes a constant of its machine code, which another process cannot use. With the
address as an argument the code is the same for every process, so that numba can store it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numba as nb
from numba.core import cgutils

from merge_bench.merge.jit import emitted


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


@emitted
def call(typing: Any, result: Any, address: Any, arguments: Any) -> Any:
    """In compiled loops: call the C function at `address`.

    `arguments`: a tuple; each is passed under its own type, so a C ``int`` has to be an ``np.int32``. `result`: the
    type of the function's result (as ``np.int32``), or None.
    """
    gives = nb.none if isinstance(result, nb.types.NoneType) else result.instance_type

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        given = cgutils.unpack_tuple(builder, values[2], len(arguments))
        back = cgutils.ir.VoidType() if gives == nb.none else context.get_value_type(gives)
        kind = cgutils.ir.FunctionType(back, [value.type for value in given])
        found = builder.call(builder.inttoptr(values[1], kind.as_pointer()), given)
        return context.get_dummy_value() if gives == nb.none else found

    return gives(result, address, arguments), emit
