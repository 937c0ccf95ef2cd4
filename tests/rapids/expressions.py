"""What the expressions of a Python file of ours are, as far as they come from a library."""

from __future__ import annotations

import ast

from tests.rapids.kinds import (
    NONE,
    SAME,
    Each,
    Instance,
    Kind,
    Kinds,
    Method,
    Name,
    Nothing,
    Other,
    Own,
    OwnObject,
    Several,
    elements,
    from_text,
)  # fmt: skip
from tests.rapids.names import Names

# Classes of what `[]` gives, where libraries do not say.
SUBSCRIPTS = {"cudf.core.dataframe.DataFrame": "cudf.core.series.Series"}
_CONTAINERS = {"list", "tuple", "iter", "sorted", "reversed", "set", "frozenset"}


class Expressions(Names):
    """Finds the kinds of expressions, and notes what they use; statements are for the class on top."""

    def types(self, node: ast.expr) -> Kinds:
        """The kinds of an expression."""
        found = self._types(node)
        self.kinds[node] = self.kinds.get(node, NONE) | found
        return found

    def _types(self, node: ast.expr) -> Kinds:
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Constant):
            return frozenset({Nothing()}) if node.value is None else NONE
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Tuple):
            return frozenset({Several(tuple(self.types(one) for one in node.elts))})
        if isinstance(node, (ast.List, ast.Set)):
            return frozenset({Each(frozenset().union(*(self.types(one) for one in node.elts)))})
        if isinstance(node, ast.Starred):
            return elements(self.types(node.value))
        if isinstance(node, ast.Dict):
            for key in node.keys:
                if key:
                    self.types(key)
            return frozenset({Each(frozenset().union(*(self.types(value) for value in node.values)))})
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            return self._comprehension(node)
        if isinstance(node, ast.IfExp):
            self.types(node.test)
            return self.types(node.body) | self.types(node.orelse)
        if isinstance(node, ast.BoolOp):
            return frozenset().union(*[self.types(value) for value in node.values])
        if isinstance(node, ast.NamedExpr):
            kinds = self.types(node.value)
            self._bind(node.target, kinds)
            return kinds
        if isinstance(node, ast.Yield):
            if node.value:
                self._known[self._scope, "return"] |= self.types(node.value)
            return NONE
        for child in ast.iter_child_nodes(node):
            self._any(child)
        return NONE

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Kinds:
        for loop in node.generators:
            self._bind(loop.target, elements(self.types(loop.iter)))
            for condition in loop.ifs:
                self.types(condition)
        if isinstance(node, ast.DictComp):
            self.types(node.key)
            return frozenset({Each(self.types(node.value))})
        return frozenset({Each(self.types(node.elt))})

    def _subscript(self, node: ast.Subscript) -> Kinds:
        kinds, index = self.types(node.value), node.slice
        self.types(index)
        if isinstance(index, ast.Slice):
            return kinds
        number = index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else None
        found: set[Kind] = set()
        for kind in kinds:
            if isinstance(kind, Several) and number is not None and -len(kind.items) <= number < len(kind.items):
                found |= kind.items[number]
            elif isinstance(kind, Instance):
                found.add(Instance(SUBSCRIPTS.get(kind.cls, kind.cls)))
            else:
                found |= elements(frozenset({kind}))
        return frozenset(found)

    def _call(self, node: ast.Call) -> Kinds:
        callees = self.types(node.func)
        arguments = [self.types(one) for one in node.args]
        keywords = {keyword.arg: self.types(keyword.value) for keyword in node.keywords}
        builtin = self._of_builtin(node, arguments) if not callees else NONE
        found: set[Kind] = set(builtin)
        for callee in callees:
            if isinstance(callee, (Name, Method)):
                found |= self._called(callee, node, node.args)
            elif isinstance(callee, Other):
                found |= self.others.get(callee.path, NONE)
            elif isinstance(callee, Own):
                found |= self._own_call(callee.name, node, arguments, keywords)
        return frozenset(found)

    def _called(self, callee: Name | Method, node: ast.Call, arguments: list[ast.expr]) -> Kinds:
        """What a call of the library gives; the call is noted."""
        path = callee.path if isinstance(callee, Name) else f"{callee.cls}.{callee.name}"
        starred = any(isinstance(one, ast.Starred) for one in arguments)
        names = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
        self._note(path, node, None if starred else len(arguments), names)
        if isinstance(callee, Name):
            entry = self.library.look(callee.path)
            if entry and entry.what in {"class", "object"}:
                return from_text(entry.returns, "")
        else:
            entry = self.library.member(callee.cls, callee.name)
            if entry and entry.returns == "Self":
                return frozenset({Instance(callee.cls)})
        returns = entry.returns if entry else ""
        if SAME in returns:
            given = self.types(arguments[0]) if arguments else NONE
            classes = {kind.cls for kind in given | elements(given) if isinstance(kind, Instance)}
            returns = returns.replace(SAME, " | ".join(sorted(classes))) if classes else ""
        return from_text(returns, path.partition(".")[0])

    def _own_call(self, name: str, node: ast.Call, arguments: list[Kinds], keywords: dict[str | None, Kinds]) -> Kinds:
        if name in self.classes:
            return frozenset({OwnObject(name)})
        function = self.functions[name]
        parameters = [one.arg for one in [*function.args.posonlyargs, *function.args.args]]
        if "." in name and parameters[:1] in (["self"], ["cls"]):
            parameters = parameters[1:]
        for parameter, kinds in [*zip(parameters, arguments, strict=False), *keywords.items()]:
            self._known[name, parameter or ""] |= kinds
        # A function that calls what it is given with the arguments that follow: noted as such a call here.
        rest = function.args.vararg.arg if function.args.vararg else None
        for inner in ast.walk(function):
            if isinstance(inner, ast.Call) and [ast.unparse(one) for one in inner.args] == [f"*{rest}"]:
                position = parameters.index(inner.func.id) if isinstance(inner.func, ast.Name) else 0
                for kind in arguments[position]:
                    if isinstance(kind, (Name, Method)):
                        self._called(kind, node, node.args[len(parameters) :])
        return frozenset(self._known[name, "return"])

    def _of_builtin(self, node: ast.Call, arguments: list[Kinds]) -> Kinds:
        name, first = ast.unparse(node.func), arguments[0] if arguments else NONE
        if name in _CONTAINERS:
            return frozenset({Each(elements(first))})
        if name == "zip":
            return frozenset({Each(frozenset({Several(tuple(map(elements, arguments)))}))})
        if name == "enumerate":
            return frozenset({Each(frozenset({Several((NONE, elements(first)))}))})
        if name == "next":
            return elements(first)
        if name == "functools.reduce":
            return elements(arguments[1])
        if name == "isinstance" and isinstance(node.args[0], (ast.Name, ast.Attribute)):
            self._bind(node.args[0], self._instances(arguments[1]))
        if isinstance(node.func, ast.Attribute):
            return self._of_container(node.func, arguments)
        return NONE

    def _of_container(self, function: ast.Attribute, arguments: list[Kinds]) -> Kinds:
        held = elements(self.types(function.value))
        if function.attr == "append":
            self._bind(function.value, frozenset({Each(arguments[0])}) if arguments[0] else NONE)
        if function.attr in {"pop", "get"}:
            return held
        if function.attr == "values":
            return frozenset({Each(held)})
        if function.attr == "items":
            return frozenset({Each(frozenset({Several((NONE, held))}))})
        return NONE
