"""Python files of a tree with their syntax trees, and groups of modules that import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """One Python file; `path` is relative to the root, with slashes."""

    path: str
    text: str

    @property
    def module(self) -> str:
        """Its name in an import."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    def at(self, node: ast.AST) -> str:
        """The place of a node."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


def read_sources(root: Path, folder: str) -> list[Source]:
    """All Python files below a folder of `root`; none if it is missing."""
    files = sorted((root / folder).rglob("*.py"))
    return [Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in files]


def _import_statements(node: ast.AST, typed: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Imports with whether they are for type checking only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, typed
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for statement in child.body:
                yield from _import_statements(ast.Module([statement], []), True)
            for statement in child.orelse:
                yield from _import_statements(ast.Module([statement], []), typed)
        else:
            yield from _import_statements(child, typed)


def import_graph(sources: Iterable[Source], with_types: bool) -> dict[str, set[str]]:
    """The modules that each module imports, inside functions too."""
    by_name = {source.module: source for source in sources}
    graph: dict[str, set[str]] = {}
    for name, source in by_name.items():
        graph[name] = set()
        package = name if source.path.endswith("__init__.py") else name.rpartition(".")[0]
        for statement, typed in _import_statements(source.tree):
            if typed and not with_types:
                continue
            parts = package.split(".")
            if isinstance(statement, ast.Import):
                targets = [alias.name for alias in statement.names]
            else:
                base = ".".join(parts[: len(parts) - statement.level + 1]) if statement.level else ""
                prefix = ".".join(filter(None, (base, statement.module)))
                targets = [f"{prefix}.{alias.name}" for alias in statement.names]
            for target in targets:
                module = target if target in by_name else target.rpartition(".")[0]
                if module in by_name and module != name:
                    graph[name].add(module)
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Groups of modules that import each other, directly or through others of the group."""

    def reachable(start: str) -> set[str]:
        seen, waiting = set[str](), list(graph[start])
        while waiting:
            if (module := waiting.pop()) not in seen:
                seen.add(module)
                waiting += graph[module]
        return seen

    reach = {module: reachable(module) for module in graph}
    groups = {tuple(sorted(other for other in reach[start] if start in reach[other])) for start in graph}
    return sorted(group for group in groups if len(group) > 1)
