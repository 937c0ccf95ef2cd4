"""The types under which columns of two tables travel, and what each engine refuses to carry.

Nothing here reads a file: these are rules over Arrow types and names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from merge_bench.errors import UsageError
from merge_bench.merge.engines import Description, describe, descriptions

types = pa.types

# Digits a decimal needs for every value of an integer type.
_DIGITS = {
    pa.int8(): 3,
    pa.uint8(): 3,
    pa.int16(): 5,
    pa.uint16(): 5,
    pa.int32(): 10,
    pa.uint32(): 10,
    pa.int64(): 19,
    pa.uint64(): 20,
}
_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNITS = ("s", "ms", "us", "ns")
MAX_DECIMAL_DIGITS = 38


def refuse_for_engine(engine: str, columns: Iterable[tuple[str, pa.DataType]]) -> None:
    """Refuse the first of the canonical columns (name, type; see `frame.canonical_type`) that `engine` cannot carry.

    Raises
    ------
    UsageError
        Naming the column, its type and the engines that take it; or the engine, if there is none of that name.
    """
    asked = describe(engine)
    for name, arrow_type in columns:
        reason = _refusal(asked, arrow_type)
        if reason is not None:
            others = [each.name for each in descriptions() if _refusal(each, arrow_type) is None]
            raise UsageError(
                f"column {name!r} has type {arrow_type}, which engine {engine} cannot carry ({reason});"
                f" take --engine {', '.join(others[:-1])} or {others[-1]}"
            )


def _refusal(engine: Description, arrow_type: pa.DataType) -> str | None:
    """Why an engine cannot carry a type; None if it can."""
    return next((why for kind, why in engine.refuses if getattr(types, f"is_{kind}")(arrow_type)), None)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The canonical type that holds every value of both canonical key types exactly; None if they do not compare.

    For uint64 beside a signed integer it is int64, which holds uint64 only below 2**63: see `needs_small_values`.
    """
    if left == right:
        return left
    if types.is_integer(left) and types.is_integer(right):
        return _common_integer(left, right)
    if types.is_floating(left) and types.is_floating(right):
        return pa.float64()
    if (types.is_decimal128(left) or left in _DIGITS) and (types.is_decimal128(right) or right in _DIGITS):
        return _common_decimal(left, right)
    if types.is_time(left) and types.is_time(right):
        unit = _finer(left.unit, right.unit)
        return pa.time64(unit) if unit in ("us", "ns") else pa.time32(unit)
    if types.is_timestamp(left) and types.is_timestamp(right):
        return pa.timestamp(_finer(left.unit, right.unit), left.tz) if left.tz == right.tz else None
    if types.is_duration(left) and types.is_duration(right):
        return pa.duration(_finer(left.unit, right.unit))
    return None


def needs_small_values(arrow_type: pa.DataType, common: pa.DataType) -> bool:
    """Whether a cast of `arrow_type` to `common` is exact only for values below 2**63."""
    return bool(arrow_type == pa.uint64() and common == pa.int64())


def _common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if types.is_signed_integer(left) == types.is_signed_integer(right):
        return max(left, right, key=lambda t: t.bit_width)
    signed, unsigned = (left, right) if types.is_signed_integer(left) else (right, left)
    wide_enough = [t for t in _SIGNED if t.bit_width >= signed.bit_width and t.bit_width > unsigned.bit_width]
    return wide_enough[0] if wide_enough else pa.int64()


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    shapes = [(_DIGITS[t], 0) if t in _DIGITS else (t.precision, t.scale) for t in (left, right)]
    scale = max(s for _, s in shapes)
    precision = scale + max(p - s for p, s in shapes)
    return pa.decimal128(precision, scale) if precision <= MAX_DECIMAL_DIGITS else None


def _finer(left: str, right: str) -> str:
    return max(left, right, key=_UNITS.index)


def output_names(
    left: Sequence[str], right: Sequence[str], left_on: Sequence[str], right_on: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The names under which both sides' columns travel and stand in the result, in the order of the columns.

    A key stands under its left name on both sides. A payload name that occurs on both sides takes `_left` and `_right`,
    a right payload named like a key takes `_right`; a suffix is repeated until the name is free.
    """
    partner = dict(zip(right_on, left_on, strict=True))
    left_payload = [name for name in left if name not in left_on]
    right_payload = [name for name in right if name not in partner]
    doubled = set(left_payload) & set(right_payload)
    taken = {*left_on, *left_payload, *right_payload}

    def rename(names: list[str], suffix: str) -> dict[str, str]:
        new = {}
        for name in names:
            candidate = name + suffix
            while candidate in taken:
                candidate += suffix
            taken.add(candidate)
            new[name] = candidate
        return new

    new_left = rename([n for n in left_payload if n in doubled], "_left")
    new_right = rename([n for n in right_payload if n in doubled or n in left_on], "_right")
    return (
        [new_left.get(name, name) for name in left],
        [partner[name] if name in partner else new_right.get(name, name) for name in right],
    )
