"""Which rows a join gives: an inner join the pairs with equal keys, others also rows without a match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from merge_bench.merge.frame import Field

if TYPE_CHECKING:  # it imports this module
    from merge_bench.merge.engines.base import Side


class How(Enum):
    """The kind of join, named as in SQL; `semi` and `anti` join the left frame with the right one."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"
    SEMI = "semi"
    ANTI = "anti"

    def keeps(self, side: Side) -> bool:
        """Whether the result has that side's rows that have no match, those with null keys included."""
        return side.value in _KEPT[self]

    @property
    def keeps_left(self) -> bool:
        """Whether the result has left rows that have no match."""
        return "left" in _KEPT[self]

    @property
    def keeps_right(self) -> bool:
        """Whether the result has right rows that have no match."""
        return "right" in _KEPT[self]

    @property
    def pairs(self) -> bool:
        """Whether the result has a row for every pair of matching rows, with the right columns beside the left ones.

        Otherwise it has left columns only, and every left row once at most.
        """
        return self not in (How.SEMI, How.ANTI)

    def output(self, left: Sequence[Field], right: Sequence[Field], keys: Sequence[str]) -> tuple[Field, ...]:
        """The fields of the result: all left ones, then the right ones that are no keys if it has `pairs`.

        A side's fields are nullable where rows of the other side are kept that it has no match for. The key of a row
        that only the right side has is the right one.
        """
        nullable = {field.name: field.nullable for field in right}
        ours = (
            replace(
                field,
                nullable=field.nullable or (self.keeps_right and (field.name not in keys or nullable[field.name])),
            )
            for field in left
        )
        theirs = (
            replace(field, nullable=field.nullable or self.keeps_left)
            for field in right
            if field.name not in keys and self.pairs
        )
        return (*ours, *theirs)


_KEPT = {
    How.INNER: (),
    How.LEFT: ("left",),
    How.RIGHT: ("right",),
    How.OUTER: ("left", "right"),
    How.SEMI: (),
    How.ANTI: ("left",),
}

DASK_JOINS = {How.INNER: "inner", How.LEFT: "left", How.RIGHT: "right", How.OUTER: "outer", How.SEMI: "leftsemi"}
"""The joins that Dask's dataframes have, under their names there."""


def names() -> tuple[str, ...]:
    """The values of ``--how``."""
    return tuple(how.value for how in How)
