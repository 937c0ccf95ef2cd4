"""Looks names up in the packages that are installed here, and remembers what it was asked for."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import re
import types
from pathlib import Path
from typing import Any

from tests.rapids.kinds import SAME, Entry

_GENERIC = re.compile(r"(?<=\w)\[(\w+): \(([^)]*)\)\](?=\()")
_LITERALS = (int, float, str, bytes, bool, type(None))


class Installed:
    """The real packages.

    Attributes
    ----------
    names, members, fields
        What was found so far: names of modules, members by class, and structure fields by library.
    """

    def __init__(self) -> None:
        self.names: dict[str, Entry] = {}
        self.members: dict[str, dict[str, Entry]] = {}
        self.fields: dict[str, set[str]] = {}

    def look(self, path: str) -> Entry | None:
        """A name of a module, or a member of an enumeration; None if there is none."""
        if path not in self.names:
            try:
                owner, made = _resolve(path.rpartition(".")[0]), _resolve(path)
            except (ImportError, AttributeError, ValueError):
                return None
            if isinstance(owner, type) and not _is_enumeration(owner):
                return None
            self.names[path] = describe(made)
        return self.names[path]

    def member(self, cls: str, name: str) -> Entry | None:
        """A method or property of a class, inherited ones as well."""
        known = self.members.setdefault(cls, {})
        if name not in known:
            try:
                owner = _resolve(cls)
            except (ImportError, AttributeError):
                return None
            entry = _member(owner, name)
            if entry is None:
                return None
            known[name] = entry
        return known[name]

    def field(self, library: str, name: str) -> bool:
        """Whether some ctypes structure of a library has a field of that name."""
        found = library in {"pynvml"} and name in _structure_fields(library)
        if found:
            self.fields.setdefault(library, set()).add(name)
        return found


def _resolve(path: str) -> Any:
    """The object of a dotted path: the longest module in it, then attributes; None for no path."""
    if not path:
        return None
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
            continue
        return functools.reduce(getattr, parts[end:], found)
    raise ImportError(path)


def full_name(cls: type) -> str:
    """The path by which a class names itself; its public one where that cannot be imported."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_enumeration(cls: type) -> bool:
    """Python's or one of cuda-bindings' own."""
    return issubclass(cls, enum.Enum) or hasattr(cls, "__members__")


def describe(made: Any) -> Entry:
    """What is known of an object in a module; the members of an enumeration are for `look`."""
    if isinstance(made, types.ModuleType):
        return Entry("module")
    if isinstance(made, type) and _is_enumeration(made):
        return Entry("enum")
    if isinstance(made, type):
        return Entry("class", _constructor(made), full_name(made))
    if _is_enumeration(type(made)):
        return Entry("constant", value=made.value)
    if isinstance(made, _LITERALS):
        return Entry("constant", value=made)
    if callable(made):
        return Entry("function", _call(made, ""), _returns(made, made.__name__))
    return Entry("object", returns=full_name(type(made)))


def _member(owner: type, name: str) -> Entry | None:
    for cls in inspect.getmro(owner):
        if name in vars(cls):
            break
        if name in getattr(cls, "__dataclass_fields__", {}):
            return Entry("property")
    else:
        return None
    raw = inspect.getattr_static(owner, name)
    if isinstance(raw, (staticmethod, classmethod)):
        bound = getattr(owner, name)
        return Entry("function", _call(bound, ""), _returns(bound, f"{cls.__name__}.{name}"))
    if callable(raw):
        return Entry("function", _call(raw, "self"), _returns(raw, f"{cls.__name__}.{name}"))
    return Entry("property", returns=_stub_returns(cls.__module__, f"{cls.__name__}.{name}"))


# --- parameters -----------------------------------------------------------------------------------------------------


def _call(function: Any, drop: str) -> str:
    parameters = list(inspect.signature(function).parameters.values())
    if drop and parameters and parameters[0].name in {"self", "cls"}:
        parameters = parameters[1:]
    return signature_text(parameters)


def signature_text(parameters: list[inspect.Parameter]) -> str:
    """Parameters as in a `def`, without annotations; `...` stands for a default that is no literal."""
    plain = [one.replace(annotation=inspect.Parameter.empty, default=_default(one.default)) for one in parameters]
    return str(inspect.Signature(plain)).replace("Ellipsis", "...")


def _default(value: Any) -> Any:
    """Literals and numbers of enumerations as they are; `...` for any other object."""
    if _is_enumeration(type(value)):
        return value.value
    return value if value is inspect.Parameter.empty or isinstance(value, _LITERALS) else ...


def _constructor(cls: type) -> str | None:
    """Parameters of a class: its own signature or, where it is compiled, that of its stub file."""
    try:
        return signature_text(list(inspect.signature(cls).parameters.values()))
    except ValueError:
        pass
    for owner in inspect.getmro(cls):
        node = _stub_of(owner.__module__).get(f"{owner.__name__}.__init__")
        if isinstance(node, ast.FunctionDef):
            return _without_annotations(node)
    return "()"


def _without_annotations(node: ast.FunctionDef) -> str:
    arguments = node.args
    arguments.args = arguments.args[1:]
    for one in [*arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if one:
            one.annotation = None
    return f"({ast.unparse(arguments)})"


# --- types, from annotations and stub files -------------------------------------------------------------------------


def _returns(function: Any, qualified: str) -> str:
    module = getattr(function, "__module__", "") or ""
    return _stub_returns(module, qualified) or _annotated(function)


def _annotated(function: Any) -> str:
    """The annotation of a Python function, if it names a class that can be found."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    if isinstance(annotation, type):
        return full_name(annotation) if annotation.__module__ != "builtins" else annotation.__name__
    if annotation is None or isinstance(annotation, str):
        text = (annotation or "").strip("'\"")
        return text if text == "Self" else _known_name(function, text)
    return str(annotation)


def _known_name(function: Any, text: str) -> str:
    found = getattr(inspect.getmodule(function), text, None) if text.isidentifier() else None
    return full_name(found) if isinstance(found, type) else ""


def _stub_returns(module: str, qualified: str) -> str:
    node = _stub_of(module).get(qualified)
    if isinstance(node, ast.FunctionDef) and node.returns:
        return _spelled_out(node.returns, module)
    if isinstance(node, ast.AnnAssign):
        return _spelled_out(node.annotation, module)
    return ""


@functools.cache
def _stub_of(module: str) -> dict[str, ast.stmt]:
    """Definitions of a module's stub file by qualified name; {} if there is none."""
    try:
        file = Path(inspect.getfile(importlib.import_module(module)))
    except (ImportError, TypeError, ValueError):
        return {}
    stub = file.parent / (file.name.partition(".")[0] + ".pyi")
    if not stub.is_file():
        return {}
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(_with_type_variables(stub.read_text())).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = node
            for inner in node.body:
                found |= _named(inner, f"{node.name}.")
        else:
            found |= _named(node, "")
    return found


def _with_type_variables(text: str) -> str:
    """``def f[T: (A, B)](`` as Python 3.11 spells it, which cannot parse that."""
    found = dict(_GENERIC.findall(text))
    variables = "".join(f'{name} = TypeVar("{name}", {kinds})\n' for name, kinds in found.items())
    return _GENERIC.sub("", text) + "\n" + variables


def _named(node: ast.stmt, prefix: str) -> dict[str, ast.stmt]:
    if isinstance(node, ast.FunctionDef):
        return {prefix + node.name: node}
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: node for alias in node.names}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {prefix + node.target.id: node}
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return {prefix + node.targets[0].id: node}
    return {}


class _Spelling(ast.NodeTransformer):
    """Replaces the names in a stub's annotation by full ones."""

    def __init__(self, module: str) -> None:
        self.module, self.stub = module, _stub_of(module)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        defined = self.stub.get(node.id)
        if isinstance(defined, ast.ClassDef):
            return _path(f"{self.module}.{node.id}")
        if isinstance(defined, ast.Assign) and isinstance(defined.value, ast.Call):  # a TypeVar
            return _path(SAME)
        if isinstance(defined, ast.ImportFrom) and defined.module and "typing" not in defined.module:
            try:
                found = _resolve(f"{defined.module}.{node.id}")
            except (ImportError, AttributeError):
                return ast.Name("Any")
            return _path(full_name(found)) if isinstance(found, type) else ast.Name("Any")
        return node


def _path(dotted: str) -> ast.expr:
    return ast.parse(dotted, mode="eval").body


def _spelled_out(annotation: ast.expr, module: str) -> str:
    return ast.unparse(_Spelling(module).visit(ast.parse(ast.unparse(annotation), mode="eval").body))


@functools.cache
def _structure_fields(library: str) -> frozenset[str]:
    import ctypes

    kinds = [one for one in vars(importlib.import_module(library)).values() if isinstance(one, type)]
    structures = [one for one in kinds if issubclass(one, (ctypes.Structure, ctypes.Union))]
    return frozenset(field[0] for one in structures for field in getattr(one, "_fields_", ()))
