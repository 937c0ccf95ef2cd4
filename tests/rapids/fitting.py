"""Whether calls fit parameters that are given as text, as ``(input, seed=0, *, stream=None)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from inspect import Parameter, Signature
from typing import Any

from tests.rapids.kinds import Entry, Library
from tests.rapids.uses import Reading, Use


def parameters(text: str) -> list[Parameter]:
    """The parameters; `...` is a default of which nothing more is known."""
    node = ast.parse(f"def f{text}: ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    found = []
    for one, default in zip(plain, defaults, strict=True):
        kind = Parameter.POSITIONAL_ONLY if one in arguments.posonlyargs else Parameter.POSITIONAL_OR_KEYWORD
        found.append(_parameter(one.arg, kind, default))
    if arguments.vararg:
        found.append(_parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL, None))
    for one, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(_parameter(one.arg, Parameter.KEYWORD_ONLY, keyword_default))
    if arguments.kwarg:
        found.append(_parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD, None))
    return found


def _parameter(name: str, kind: Any, default: ast.expr | None) -> Parameter:
    value = Parameter.empty if default is None else ast.literal_eval(default)
    return Parameter(name, kind, default=value)


def misfits(reading: Reading, library: Library) -> Iterator[str]:
    """What is wrong with the uses of a file, one line each, with the line number."""
    for problem in reading.problems:
        yield f"line {problem.line}: {problem.text}"
    for use in reading.uses:
        entry = entry_of(use.path, library)
        if use.positional is None or entry is None:
            continue
        reason = _misfit(use, entry)
        if reason:
            yield f"line {use.line}: {use.path}{entry.call or ''}: {reason}"


def entry_of(path: str, library: Library) -> Entry | None:
    """The entry of a name or of a class's member."""
    cls, _, name = path.rpartition(".")
    return library.look(path) or library.member(cls, name)


def _misfit(use: Use, entry: Entry) -> str:
    if entry.call is None:
        return "is called, and cannot be"
    signature = Signature(parameters(entry.call))
    try:
        signature.bind(*[None] * (use.positional or 0), **dict.fromkeys(use.keywords))
    except TypeError as error:
        return str(error)
    return ""
