"""Names and attributes in a Python file of ours: what they are of a library, and what is noted of that."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tests.rapids.kinds import (
    NONE,
    PLAIN,
    Each,
    Entry,
    Instance,
    Kind,
    Kinds,
    Library,
    Method,
    Name,
    Nothing,
    Opaque,
    Other,
    Own,
    OwnObject,
    Several,
    elements,
    from_text,
)  # fmt: skip


@dataclass(frozen=True)
class Use:
    """One place where the source takes a name of a library.

    `positional`: number of positional arguments; None where it is not called here or the number is not known.
    """

    path: str
    line: int
    positional: int | None = None
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Something that the library does not have, or of which the source does not show what it is."""

    line: int
    text: str


class Names:
    """Binds names to kinds, finds attributes, notes uses; expressions are for the class on top."""

    def __init__(self, library: Library, others: Mapping[str, Kinds]) -> None:
        self.library, self.others = library, others
        self.functions: dict[str, ast.FunctionDef] = {}
        self.classes: set[str] = set()
        self.attributes: dict[tuple[str, str], ast.expr] = {}  # annotations of attributes of self
        self.kinds: dict[ast.expr, Kinds] = {}
        self._known: dict[tuple[str, str], set[Kind]] = defaultdict(set)
        self._uses: set[Use] = set()
        self._problems: set[Problem] = set()
        self._narrowed: dict[tuple[str, str], Kinds] = {}  # by the `isinstance` of a statement around
        self._scope, self._class, self._strict = "", "", True

    def types(self, node: ast.expr) -> Kinds:
        """The kinds of an expression."""
        raise NotImplementedError

    def _any(self, node: ast.AST) -> None:
        """Look through any node."""
        raise NotImplementedError

    def _instances(self, classes: Kinds) -> Kinds:
        """Objects of these classes or tuples of classes."""
        return frozenset(made for kind in classes | elements(classes) for made in self._made(kind))

    def _named(self, name: str) -> Kinds:
        if (self._scope, name) in self._narrowed:
            return self._narrowed[self._scope, name]
        for scope in (self._scope, ""):
            if (scope, name) in self._known:
                return frozenset(self._known[scope, name])
        if name == "self" and self._class:
            return frozenset({OwnObject(self._class)})
        return frozenset({Own(name)}) if name in self.functions or name in self.classes else NONE

    def _made(self, kind: Kind) -> Kinds:
        if isinstance(kind, Own) and kind.name in self.classes:
            return frozenset({OwnObject(kind.name)})
        entry = self.library.look(kind.path) if isinstance(kind, Name) else None
        return from_text(entry.returns, "") if entry and entry.what == "class" else NONE

    def _attribute(self, node: ast.Attribute) -> Kinds:
        base, found, missing = self.types(node.value) - {Nothing()}, set[Kind](), []
        for kind in base:
            if isinstance(kind, OwnObject):
                found |= self._of_own(kind.cls, node.attr)
                continue
            if isinstance(kind, Other):
                found |= self._of_other(f"{kind.path}.{node.attr}")
                continue
            kinds = self._of_library(kind, node)
            if kinds is None:
                missing.append(kind)
            else:
                found |= kinds
        if missing and not found and not any(isinstance(kind, (OwnObject, Each, Several, Own, Other)) for kind in base):
            self._problem(node, f"{' or '.join(sorted(map(_label, missing)))} has no {node.attr}")
        if not base and self._strict and self._untyped(node.value):
            self._problem(node, f"cannot find the class of {ast.unparse(node.value)}, whose .{node.attr} is used")
        return frozenset(found)

    def _of_other(self, path: str) -> Kinds:
        """A function of another file that gives something of a library, or a module with such functions."""
        known = path in self.others or any(one.startswith(f"{path}.") for one in self.others)
        return frozenset({Other(path)}) if known else NONE

    def _of_own(self, cls: str, attr: str) -> Kinds:
        name = f"{cls}.{attr}"
        if name in self.functions:
            if any(ast.unparse(decorator) == "property" for decorator in self.functions[name].decorator_list):
                return frozenset(self._known[name, "return"])
            return frozenset({Own(name)})
        return frozenset(self._known[f"{cls}.", attr])

    def _of_library(self, kind: Kind, node: ast.Attribute) -> Kinds | None:
        """Kinds of an attribute; None if the library does not have it."""
        if isinstance(kind, Name):
            entry = self.library.look(kind.path)
            if entry and entry.what == "object":
                return self._of_library(Instance(entry.returns), node)
            if entry and entry.what == "constant":
                return NONE
            path = f"{kind.path}.{node.attr}"
            found = self.library.look(path)
            if entry and entry.what == "class":
                found = self.library.member(entry.returns, node.attr)
                path = f"{entry.returns}.{node.attr}"
            if found is None:
                return None
            self._note(path, node)
            if entry and entry.what == "class":
                return self._from_member(entry.returns, node.attr, found)
            return frozenset({Name(path)})
        if isinstance(kind, Instance):
            found = self.library.member(kind.cls, node.attr)
            if found is None:
                return None
            self._note(f"{kind.cls}.{node.attr}", node)
            return self._from_member(kind.cls, node.attr, found)
        if isinstance(kind, Opaque):
            if node.attr in PLAIN or self.library.field(kind.library, node.attr):
                return frozenset({kind})
            return None
        return NONE

    def _from_member(self, cls: str, attr: str, entry: Entry) -> Kinds:
        if entry.call is not None:
            return frozenset({Method(cls, attr)})
        return from_text(entry.returns, cls.partition(".")[0])

    def _bind(self, target: ast.expr, kinds: Kinds) -> None:
        if isinstance(target, ast.Name):
            self._known[self._scope, target.id] |= kinds
        elif isinstance(target, ast.Starred):
            self._bind(target.value, frozenset({Each(kinds)}))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for position, one in enumerate(target.elts):
                self._bind(one, self._part(kinds, position))
        elif isinstance(target, ast.Subscript):
            if kinds:
                self._bind(target.value, frozenset({Each(kinds)}))
        elif isinstance(target, ast.Attribute):
            for owner in self.types(target.value):
                if isinstance(owner, OwnObject):
                    self._known[f"{owner.cls}.", target.attr] |= kinds

    def _part(self, kinds: Kinds, position: int) -> Kinds:
        found: set[Kind] = set()
        for kind in kinds:
            if isinstance(kind, Several):
                found |= kind.items[position] if position < len(kind.items) else NONE
            else:
                found |= elements(frozenset({kind}))
        return frozenset(found)

    def _untyped(self, node: ast.expr) -> bool:
        """Whether a name or attribute is annotated as Any."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name) and self._scope in self.functions:
            arguments = self.functions[self._scope].args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            annotation = next((one.annotation for one in every if one.arg == node.id), None)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            annotation = self.attributes.get((self._class, node.attr))
        else:
            return False
        return annotation is not None and "Any" in {one.id for one in ast.walk(annotation) if isinstance(one, ast.Name)}

    def _note(self, path: str, node: ast.AST, positional: int | None = None, keywords: tuple[str, ...] = ()) -> None:
        line = getattr(node, "lineno", 0)
        if self.library.look(path) is None and not self._is_member(path):
            self._problem(node, f"there is no {path}")
            return
        self._uses.add(Use(path, line, positional, keywords))

    def _is_member(self, path: str) -> bool:
        cls, _, name = path.rpartition(".")
        return self.library.member(cls, name) is not None

    def _problem(self, node: ast.AST, text: str) -> None:
        self._problems.add(Problem(getattr(node, "lineno", 0), text))


def _label(kind: Kind) -> str:
    if isinstance(kind, Name):
        return kind.path
    if isinstance(kind, Instance):
        return kind.cls
    return f"a result of {kind.library}" if isinstance(kind, Opaque) else str(kind)
