"""Common types of keys, names of result columns, and the column types that engines refuse.

Nothing here reads a file: these are rules about Arrow types and names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from merge_bench.errors import UsageError
from merge_bench.merge.engines import Description, describe, descriptions

types = pa.types

_FAMILIES = (types.is_integer, types.is_floating, types.is_decimal128, types.is_time, types.is_duration)


def refuse_for_engine(engine: str, columns: Iterable[tuple[str, pa.DataType]]) -> None:
    """Refuse the first of the columns (name, canonical type; see `frame.canonical_type`) that `engine` cannot merge.

    Raises
    ------
    UsageError
        Naming the column, its type and the engines that support it; or if there is no engine of that name.
    """
    description = describe(engine)
    for name, arrow_type in columns:
        reason = _refusal_reason(description, arrow_type)
        if reason is not None:
            others = [each.name for each in descriptions() if _refusal_reason(each, arrow_type) is None]
            raise UsageError(
                f"column {name!r} has type {arrow_type}, which engine {engine} cannot merge ({reason});"
                f" use --engine {', '.join(others[:-1])} or {others[-1]}"
            )


def _refusal_reason(engine: Description, arrow_type: pa.DataType) -> str | None:
    """The reason why an engine does not support a type; None if it does."""
    return next((why for kind, why in engine.refuses if getattr(types, f"is_{kind}")(arrow_type)), None)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The canonical type that holds every value of both canonical key types exactly; None if they cannot be compared.

    Binary beside strings is compared as bytes. For uint64 beside a signed integer the type is int64, which holds uint64
    only below 2**63: see `needs_small_values`. A column without values (null) takes the type of the other.
    """
    if left == right:
        return left
    if types.is_decimal128(left) or types.is_decimal128(right):
        left, right = _decimal_for_integers(left), _decimal_for_integers(right)
    if {left, right} == {pa.large_string(), pa.large_binary()}:
        return pa.large_binary()
    if types.is_null(left) or types.is_null(right):
        return right if types.is_null(left) else left
    if _comparable_family(left) != _comparable_family(right):
        return None
    schemas = [pa.schema([("key", each)]) for each in (left, right)]
    common = pa.unify_schemas(schemas, promote_options="permissive").field("key").type
    return None if types.is_decimal256(common) else common


def unified_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of a column with these canonical types in two files; None if there is none.

    As `pyarrow.unify_schemas(promote_options="permissive")`, but for decimals beside floats, which would be rounded. A
    cast of integers to the floating type of others, or of uint64 to int64, has to be checked value by value.
    """
    if left == right:
        return left
    if any(types.is_decimal(a) and types.is_floating(b) for a, b in ((left, right), (right, left))):
        return None
    try:
        common = pa.unify_schemas([pa.schema([("c", left)]), pa.schema([("c", right)])], promote_options="permissive")
    except pa.ArrowException:
        return None
    common_type_of_files = common.field("c").type
    return None if types.is_decimal256(common_type_of_files) else common_type_of_files


def needs_small_values(arrow_type: pa.DataType, common: pa.DataType) -> bool:
    """Whether a cast of `arrow_type` to `common` is exact only for values below 2**63."""
    return bool(arrow_type == pa.uint64() and common == pa.int64())


def _comparable_family(arrow_type: pa.DataType) -> object:
    """What is equal for two types whose values can be compared exactly once they are cast to one type."""
    if types.is_timestamp(arrow_type):
        return "timestamp", arrow_type.tz
    return next((holds for holds in _FAMILIES if holds(arrow_type)), arrow_type)


def _decimal_for_integers(arrow_type: pa.DataType) -> pa.DataType:
    """For an integer type the decimal type of all its values (Arrow gives a digit too few); other types unchanged."""
    if not types.is_integer(arrow_type):
        return arrow_type
    return pa.decimal128(len(str(2 ** (arrow_type.bit_width - types.is_signed_integer(arrow_type)))), 0)


def output_names(
    left: Sequence[str], right: Sequence[str], left_on: Sequence[str], right_on: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The names of both sides' columns in frames and in the result, in the order of the columns.

    A key has its left name on both sides. A payload name that occurs on both sides gets `_left` and `_right`, a right
    payload with the name of a key gets `_right`. A suffix is repeated until the name is unique.
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
