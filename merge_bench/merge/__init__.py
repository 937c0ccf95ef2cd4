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
    """Return the member that a file's source text declares; None if it declares none.

    Only the lines of the declaration are parsed: to parse all files takes every process 0.1 s of CPU (AMD EPYC).
    """
    _, found, declaration = f"\n{source_text}".partition(f"\n{constant_name} = ")
    lines = declaration.split("\n") if found else []
    for count in range(1, len(lines) + 1):
        try:
            value = ast.parse("\n".join(lines[:count]), mode="eval").body
        except SyntaxError:
            continue  # the declaration goes on
        if not isinstance(value, ast.Call):
            return None
        return member_class(**{str(word.arg): ast.literal_eval(word.value) for word in value.keywords})
    return None
