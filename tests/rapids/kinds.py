"""What an expression of our source may be, as far as RAPIDS is concerned; anything else is the empty set."""

from __future__ import annotations

import ast
import enum
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True)
class Name:
    """A module, function, class or constant of a library, by the dotted path that our source gives it."""

    path: str


@dataclass(frozen=True)
class Instance:
    """An object of a library's class, named as the class names itself."""

    cls: str


@dataclass(frozen=True)
class Method:
    """A method of an object."""

    cls: str
    name: str


@dataclass(frozen=True)
class Opaque:
    """A result of whose type the library says nothing."""

    library: str


@dataclass(frozen=True)
class Each:
    """A list, dict or iterator of what is given."""

    items: frozenset[Kind]


@dataclass(frozen=True)
class Several:
    """A tuple of known length."""

    items: tuple[frozenset[Kind], ...]


@dataclass(frozen=True)
class Own:
    """A function or class of the file itself; methods as ``Class.method``."""

    name: str


@dataclass(frozen=True)
class OwnObject:
    """An object of a class of the file itself."""

    cls: str


@dataclass(frozen=True)
class Other:
    """A function or module of another file of ours, by its dotted path."""

    path: str


@dataclass(frozen=True)
class Nothing:
    """None."""


Kind: TypeAlias = Name | Instance | Method | Opaque | Each | Several | Own | OwnObject | Other | Nothing
Kinds: TypeAlias = frozenset[Kind]
NONE: Kinds = frozenset()

# An opaque result may be a number, a text, a list or a member of an enumeration: these attributes say nothing new.
PLAIN = {name for kind in (int, float, str, bytes, list, tuple, dict, enum.IntEnum) for name in dir(kind)} | {
    "name",
    "value",
}


SAME = "first.argument"  # in a return type: the class of the first argument, or of its elements
_FOREIGN = {"pylibcudf._interop_helpers.ArrowLike"}  # what pyarrow makes, and other libraries like it


@dataclass(frozen=True)
class Entry:
    """What is known of one name of a library.

    `what`: "module", "function", "class", "enum", "object" (`returns` tells its class), "constant" or "property".
    `call`: parameters as in a `def`, without self; None where it cannot be called.
    `returns`: a type with full names; "" where the library does not say.
    `value`: of a constant; the members of an enumeration.
    """

    what: str
    call: str | None = None
    returns: str = ""
    value: object = None


class Library(Protocol):
    """Where names are looked up: the installed packages or the record of them."""

    def look(self, path: str) -> Entry | None:
        """A name of a module, or a member of an enumeration; None if there is none."""

    def member(self, cls: str, name: str) -> Entry | None:
        """A method or property of a class, inherited ones as well."""

    def field(self, library: str, name: str) -> bool:
        """Whether some structure of a library has a field of that name."""


def from_text(text: str, library: str) -> Kinds:
    """The kinds that a type with full names stands for; an opaque one where it is not given."""
    if text in {"", "Any", "object"}:
        return frozenset({Opaque(library)})
    return _from_node(ast.parse(text, mode="eval").body)


def _from_node(node: ast.expr) -> Kinds:
    if isinstance(node, ast.BinOp):
        return _from_node(node.left) | _from_node(node.right)
    if isinstance(node, ast.Attribute):
        cls = ast.unparse(node)
        return NONE if cls in _FOREIGN else frozenset({Instance(cls)})
    if isinstance(node, ast.Subscript):
        container = ast.unparse(node.value).rpartition(".")[2]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kinds = [_from_node(one) for one in inner]
        if container in {"tuple", "Tuple"} and not (isinstance(inner[-1], ast.Constant) and inner[-1].value is ...):
            return frozenset({Several(tuple(kinds))})
        if container == "memoryview":
            return NONE
        return frozenset({Each(frozenset().union(*kinds))})
    return NONE


def elements(kinds: Kinds) -> Kinds:
    """What iteration over these gives."""
    found: set[Kind] = set()
    for kind in kinds:
        if isinstance(kind, Each):
            found |= kind.items
        elif isinstance(kind, Several):
            found |= frozenset().union(*kind.items)
        elif isinstance(kind, Opaque):
            found.add(kind)
    return frozenset(found)
