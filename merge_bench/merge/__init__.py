"""What one worker does with its rows: workload, partition, exchange, join, verification."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

Member = TypeVar("Member")


@functools.cache
def read_registry(
    folders: Sequence[str], constant_name: str, member_class: Callable[..., Member]
) -> tuple[Member, ...]:
    """Return the members of a registry, which the Python files in `folders` declare.

    A declaration is ``constant_name = member_class(…)`` with literal arguments. The declarations are read from the
    source text, without importing these files or their libraries.
    """
    files = (path for folder in folders for path in sorted(Path(folder).glob("*.py")))
    members = (_read_declared_member(path.read_text(encoding="utf-8"), constant_name, member_class) for path in files)
    return tuple(member for member in members if member is not None)


def _read_declared_member(source_text: str, constant_name: str, member_class: Callable[..., Member]) -> Member | None:
    """Return the member that a file's source text declares; None if it declares none."""
    for statement in ast.parse(source_text).body if f"\n{constant_name} = " in source_text else ():
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(keywords=words)) if name == constant_name:
                return member_class(**{str(word.arg): ast.literal_eval(word.value) for word in words})
    return None
