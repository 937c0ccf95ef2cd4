"""Finds what a Python file of ours takes from a library: names, calls with their arguments, attributes of results.

It follows values through assignments, calls between functions of the file, loops and attributes of `self`, without
regard to the order of statements, until nothing new is found. So a new call is found wherever it is written.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Mapping, Sequence

from tests.rapids.expressions import Expressions
from tests.rapids.kinds import NONE, Each, Instance, Kinds, Library, Method, Name, Several, elements, from_text
from tests.rapids.names import Problem, Use

__all__ = ["Problem", "Reading", "Use"]


class Reading(Expressions):
    """What a file takes from the libraries `roots`.

    Parameters
    ----------
    others
        What functions of other files give, by dotted path.
    declared
        Classes of parameters that come from elsewhere, by ``function.parameter``.
    strict
        Whether an attribute of something annotated as Any, which nothing shows the kind of, is a problem.

    Attributes
    ----------
    uses, problems
        In the order of lines.
    kinds
        The kinds of every expression, by its node in `tree`.
    """

    def __init__(
        self,
        source: str,
        library: Library,
        roots: Iterable[str],
        others: Mapping[str, Kinds] = types.MappingProxyType({}),
        *,
        declared: Mapping[str, str] = types.MappingProxyType({}),
        strict: bool = True,
    ) -> None:
        super().__init__(library, others)
        self._strict = strict
        self.tree, self.roots = ast.parse(source), frozenset(roots)
        for dotted, cls in declared.items():
            function, _, parameter = dotted.rpartition(".")
            self._known[function, parameter] |= from_text(cls, cls.partition(".")[0])
        self._collect(self.tree.body, "")
        while True:
            before = sum(map(len, self._known.values()))
            self._uses, self._problems, self.kinds = set(), set(), {}
            self._statements(self.tree.body)
            if sum(map(len, self._known.values())) == before:
                break
        called = {(use.path, use.line) for use in self._uses if use.positional is not None}
        uses = [use for use in self._uses if use.positional is not None or (use.path, use.line) not in called]
        self.uses = sorted(uses, key=lambda use: (use.line, use.path, use.positional or 0, use.keywords))
        self.problems = sorted(self._problems, key=lambda problem: (problem.line, problem.text))

    def known(self, scope: str, name: str) -> Kinds:
        """Kinds of a variable, parameter or ``return`` of a function, or, in ``Class.``, of an attribute."""
        return frozenset(self._known.get((scope, name), ()))

    def gives(self) -> dict[str, Kinds]:
        """What functions of the file give, where it is something of a library."""
        found = {name: self.known(name, "return") for name in self.functions}
        return {name: kinds for name, kinds in found.items() if _of_library(kinds)}

    def _collect(self, body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                self.functions[prefix + node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes.add(node.name)
                self._collect(node.body, f"{node.name}.")

    # --- statements -------------------------------------------------------------------------------------------------

    def _statements(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef):
            self._function(node)
        elif isinstance(node, ast.ClassDef):
            outer, self._class = self._class, node.name
            self._statements(node.body)
            self._class = outer
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._imports(node)
        elif isinstance(node, ast.Assign):
            kinds = self.types(node.value)
            for target in node.targets:
                self._bind(target, kinds)
        elif isinstance(node, ast.AnnAssign):
            if isinstance(node.target, ast.Attribute):
                self.attributes[self._class, node.target.attr] = node.annotation
            self._bind(node.target, (self.types(node.value) if node.value else NONE) | self._annotated(node.annotation))
        elif isinstance(node, ast.AugAssign):
            self._bind(node.target, self.types(node.value))
        elif isinstance(node, ast.For):
            self._bind(node.target, elements(self.types(node.iter)))
            self._statements([*node.body, *node.orelse])
        elif isinstance(node, (ast.If, ast.While)):
            self._branch(node)
        elif isinstance(node, ast.With):
            for item in node.items:
                kinds = self.types(item.context_expr)
                if item.optional_vars:
                    self._bind(item.optional_vars, kinds)
            self._statements(node.body)
        elif isinstance(node, ast.Return):
            if node.value:
                self._known[self._scope, "return"] |= self.types(node.value)
        else:
            for child in ast.iter_child_nodes(node):
                self._any(child)

    def _branch(self, node: ast.If | ast.While) -> None:
        """In a branch behind `isinstance(name, classes)`, the name is one of these classes and no other."""
        self.types(node.test)
        tested, outer = node.test, dict(self._narrowed)
        if isinstance(tested, ast.Call) and ast.unparse(tested.func) == "isinstance":
            name, classes = tested.args[0], self._instances(self.types(tested.args[1]))
            if isinstance(name, ast.Name) and classes:
                self._narrowed[self._scope, name.id] = classes
        self._statements(node.body)
        self._narrowed = outer
        self._statements(node.orelse)

    def _any(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            self.types(node)
        elif isinstance(node, ast.stmt):
            self._statement(node)
        else:
            for child in ast.iter_child_nodes(node):
                self._any(child)

    def _function(self, node: ast.FunctionDef) -> None:
        outer, own = self._scope, f"{self._class}.{node.name}" if self._class else node.name
        if not outer:  # functions inside of functions share their names
            self._scope = own
        arguments = node.args
        for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            if one.annotation:
                self._known[self._scope, one.arg] |= self._annotated(one.annotation)
        for default in [*arguments.defaults, *(value for value in arguments.kw_defaults if value)]:
            self.types(default)
        if node.returns:
            self._known[self._scope, "return"] |= self._annotated(node.returns)
        self._statements(node.body)
        self._scope = outer

    def _imports(self, node: ast.Import | ast.ImportFrom) -> None:
        names = [(alias.name, alias.asname) for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            if node.level:
                return
            for name, asname in names:
                self._known[self._scope, asname or name] |= self._of_other(f"{node.module}.{name}")
                if not self._in_library(node.module or ""):
                    continue
                self._note(f"{node.module}.{name}", node)
                self._known[self._scope, asname or name].add(Name(f"{node.module}.{name}"))
        else:
            for name, asname in names:
                if self._in_library(name):
                    self._note(name, node)
                    top = name if asname else name.partition(".")[0]
                    self._known[self._scope, asname or top].add(Name(top))

    def _in_library(self, module: str) -> bool:
        return module.partition(".")[0] in self.roots

    def _annotated(self, node: ast.expr) -> Kinds:
        """Kinds that an annotation names: classes of a library, alone or in containers."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.BinOp):
            return self._annotated(node.left) | self._annotated(node.right)
        if isinstance(node, ast.Subscript):
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            found = [self._annotated(one) for one in inner]
            if ast.unparse(node.value) == "tuple" and ast.unparse(inner[-1]) != "...":
                return frozenset({Several(tuple(found))}) if any(found) else NONE
            items: Kinds = frozenset().union(*found)
            return frozenset({Each(items)}) if items else NONE
        if isinstance(node, (ast.Name, ast.Attribute)):
            return frozenset(made for kind in self.types(node) for made in self._made(kind))
        return NONE


def _of_library(kinds: Kinds) -> bool:
    """Whether there is something of a library among them."""
    return any(
        any(map(_of_library, kind.items)) if isinstance(kind, Several)
        else _of_library(kind.items) if isinstance(kind, Each)
        else isinstance(kind, (Name, Instance, Method))
        for kind in kinds
    )  # fmt: skip
