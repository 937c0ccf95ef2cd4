"""How loops are compiled: by numba, without the interpreter's lock, and cached beside their file.

Also what compiled loops can do beyond plain Python: read and copy bytes at any position, and call C functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import numba as nb
import numpy as np
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

Loop = TypeVar("Loop", bound=Callable[..., Any])

LINE = 64
"""Bytes of a cache line."""


def compile_loop(loop: Loop) -> Loop:
    """Compile a loop with numba, to run without the interpreter's lock; a decorator."""
    return _compile_cached(loop)


def compile_inline(expression: Loop) -> Loop:
    """Compile a small function with numba so that it is inlined into each compiled loop that calls it; a decorator."""
    return _compile_cached(expression, inline="always")


def _compile_cached(function: Loop, **options: str) -> Loop:
    """Compile a function with numba, and cache its machine code where numba may write.

    A cache below ``/tmp`` would be no replacement: other users can write there, and numba unpickles what it finds.
    """
    try:
        loop: Loop = nb.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        loop = nb.njit(nogil=True, **options)(function)
    return loop


def prepare_for_loops() -> None:
    """Have numba register all that loops can call, which else the first loop of each process waits 0.4 s for."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


_emitted: Callable[..., Any] = intrinsic
"""A decorator: what the function returns emits the machine code of each call."""


@_emitted
def load_uint64(typing: Any, data: Any, position: Any) -> Any:
    """Read eight bytes of `data` from `position` on as one little-endian uint64; `position` is not checked."""

    def emit_load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _element_pointer(context, builder, signature, arguments, 0)
        return builder.load(builder.bitcast(place, cgutils.ir.IntType(64).as_pointer()), align=1)

    return nb.uint64(data, nb.uint64), emit_load


@_emitted
def copy_bytes(typing: Any, data: Any, start: Any, size: Any, out: Any, out_start: Any) -> Any:
    """Copy data[start:start + size] to out[out_start:], unchecked.

    This takes 3 ns for 18 bytes, a loop over the bytes 15. (A plain function would count references for every row.)
    """

    def emit_copy(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (_element_pointer(context, builder, signature, arguments, of) for of in (0, 3))
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)

    return nb.void(data, nb.uint64, nb.uint64, out, nb.uint64), emit_copy


@compile_inline
def low_bytes_mask(count: Any) -> Any:
    """Return a 64-bit word whose lowest `count` bytes (0 to 7) are all ones, the others zeros."""
    return (np.uint64(1) << (np.uint64(8) * np.uint64(count))) - np.uint64(1)


def _copy_constant(size: int) -> Callable[..., Any]:
    """Return a function that copies `size` bytes of data[start:] to out[out_start:], unchecked, by vector stores."""

    def copy(typing: Any, data: Any, start: Any, out: Any, out_start: Any) -> Any:
        def emit_copy(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, target = (_element_pointer(context, builder, signature, arguments, of) for of in (0, 2))
            cgutils.raw_memcpy(builder, target, source, cgutils.ir.Constant(cgutils.ir.IntType(64), size), 1)

        return nb.void(data, nb.uint64, out, nb.uint64), emit_copy

    copied: Callable[..., Any] = _emitted(copy)
    return copied


copy_16_bytes, copy_32_bytes = _copy_constant(16), _copy_constant(32)


@_emitted
def store_cache_lines(
    typing: Any, columns: Any, rows: Any, first_row: Any, out: Any, out_start: Any, gaps: Any, gap_index: Any
) -> Any:
    """Transpose some collected rows: store 64 bytes of each column to its place in `out`, past the caches, unchecked.

    Column c goes to out[out_start + gaps[gap_index + c]:]. `columns`: a tuple of as many arrays as a row has values.
    `rows`: one row's values after the other's, from rows[first_row] on as many rows as 64 bytes have values. All places
    are aligned to 64 bytes. Another thread or process that reads what was written has to wait for `fence_stores`.
    """
    count = len(columns)

    def emit_line_stores(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ir = cgutils.ir
        size = context.get_abi_sizeof(context.get_data_type(rows.dtype))
        word = min(size, 8)  # a longer value moves as several words
        words, values = size // word, LINE // size
        one_line, all_lines = (ir.VectorType(ir.IntType(8 * word), lines * LINE // word) for lines in (1, count))
        source, first_gap = (_element_pointer(context, builder, signature, arguments, of) for of in (1, 5))
        target = context.make_array(signature.args[3])(context, builder, arguments[3]).data
        hint = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        held = builder.load(builder.bitcast(source, all_lines.as_pointer()), align=LINE)
        for column in range(count):
            taken = [(value * count + column) * words + part for value in range(values) for part in range(words)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), len(taken)), taken)
            line = builder.shuffle_vector(held, ir.Constant(all_lines, ir.Undefined), mask) if count > 1 else held
            place = builder.add(arguments[4], builder.load(cgutils.gep_inbounds(builder, first_gap, column)))
            store = builder.store(
                line, builder.bitcast(builder.gep(target, [place]), one_line.as_pointer()), align=LINE
            )
            store.set_metadata("nontemporal", hint)
        return context.get_dummy_value()

    return nb.void(columns, rows, nb.uint64, out, nb.uint64, gaps, nb.uint64), emit_line_stores


@_emitted
def item_size(typing: Any, array: Any) -> Any:
    """Return the bytes of one value of an array, as a constant for the compiler."""

    def emit_size_constant(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_constant(nb.uint64, context.get_abi_sizeof(context.get_data_type(array.dtype)))

    return nb.uint64(array), emit_size_constant


@_emitted
def fence_stores(typing: Any) -> Any:
    """Make all earlier stores of this thread visible to other threads before anything that comes after."""

    def emit_fence(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return nb.void(), emit_fence


def _element_pointer(context: Any, builder: Any, signature: Any, arguments: Any, array_number: int) -> Any:
    """Return the pointer to an array's element: argument `array_number` is the array, the next one the index."""
    array = context.make_array(signature.args[array_number])(context, builder, arguments[array_number])
    return builder.gep(array.data, [arguments[array_number + 1]])


def c_function_address(library: ctypes.CDLL, name: str) -> int:
    """Return the address of the C function `name` of a loaded library, for `call_c_function`.

    Raises `AttributeError` if the library has no such function.
    """
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


@_emitted
def call_c_function(typing: Any, result_type: Any, address: Any, arguments: Any) -> Any:
    """Call the C function at `address` with the arguments, from a compiled loop.

    A ctypes function in a compiled loop becomes a constant of its machine code, which another process cannot use. With
    the address as an argument the code is the same for every process, so that numba can store it.

    `arguments`: a tuple; each is passed under its own type, so a C ``int`` has to be an ``np.int32``. `result_type`:
    the type of the function's result (as ``np.int32``), or None.
    """
    returns = nb.none if isinstance(result_type, nb.types.NoneType) else result_type.instance_type

    def emit_call(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        passed = cgutils.unpack_tuple(builder, values[2], len(arguments))
        back = cgutils.ir.VoidType() if returns == nb.none else context.get_value_type(returns)
        kind = cgutils.ir.FunctionType(back, [value.type for value in passed])
        returned = builder.call(builder.inttoptr(values[1], kind.as_pointer()), passed)
        return context.get_dummy_value() if returns == nb.none else returned

    return returns(result_type, address, arguments), emit_call
