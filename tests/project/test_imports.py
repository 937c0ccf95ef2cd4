"""What `lint-imports` (pyproject.toml has its contract) cannot see: modules that are imported by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "merge_bench"
BY_NAME = {
    "import_module",
    "__import__",
    "resolve_name",
    "exec_module",
    "load_module",
    "run_module",
    "run_path",
    "spec_from_file_location",
    "exec",
}
"""Calls that import what a string names."""

_MAY_IMPORT = re.compile(rf"\b({'|'.join(BY_NAME)})\b")


def imports_by_name(source: str) -> Iterator[ast.Call]:
    if not _MAY_IMPORT.search(source):  # nothing to parse
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if name in BY_NAME:
                yield node


def is_own_member(call: ast.Call) -> bool:
    """Whether a call is ``importlib.import_module(f"{__name__}.…")``: of a module in the folder that it stands in."""
    if ast.unparse(call.func) != "importlib.import_module" or len(call.args) != 1:
        return False
    match call.args[0]:
        case ast.JoinedStr(
            values=[ast.FormattedValue(value=ast.Name(id="__name__")), ast.Constant(value=str(dot)), *_]
        ):
            return dot == "."
    return False


def test_only_a_registry_imports_by_name_and_only_from_its_own_folder() -> None:
    """A registry is the ``__init__.py`` of a folder of members, below the package's own."""
    found = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in imports_by_name(path.read_text())
        if path.name != "__init__.py" or path.parent == PACKAGE or not is_own_member(call)
    ]
    assert not found


@pytest.mark.parametrize(
    ("code", "own"),
    [
        ('importlib.import_module(f"{__name__}.{name}")', True),
        ('importlib.import_module(f"{__name__}.{name.replace(1, 2)}").make()', True),
        ('importlib.import_module(f"merge_bench.tune.{name}")', False),
        ('importlib.import_module("json")', False),
        ("importlib.import_module(name)", False),
        ('import_module(f"{__name__}.{name}")', False),
        ('importlib.import_module(f".{name}", package)', False),
        ("__import__(name)", False),
    ],
)
def test_the_rule_can_tell(code: str, own: bool) -> None:
    (call,) = imports_by_name(code)
    assert is_own_member(call) is own


def documented_imports() -> Iterator[str]:
    """Each import of the package in docs and notebooks, as a statement on one line."""
    root = PACKAGE.parent
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("notebooks/*.ipynb")]
    texts = [page.read_text() for page in pages]
    yield from {
        f"{found[1]}"
        for text in texts
        for found in re.finditer(
            r"(?m)^[\s>.\"]*((?:from merge_bench[\w.]* import [\w, ]+|import merge_bench[\w.]*))", text
        )
    }


def test_every_name_that_docs_and_notebooks_import_is_there() -> None:
    statements = sorted(documented_imports())
    assert "from merge_bench import published" in statements
    for statement in statements:
        exec(statement, {})
