"""Type checks a file of ours against the stubs of the libraries that it uses.

The libraries are loaded inside of functions, so that the package works without them; to mypy they are `Any`. So a copy
is made in which every expression that is a name of a library is written as that name, and `Any` as the classes that
`uses.py` found there.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.rapids.kinds import Each, Instance, Kinds, Library, Method, Name, Nothing
from tests.rapids.sources import ROOT
from tests.rapids.uses import Reading

TYPED = ("pylibcudf", "rmm")  # say in stubs or annotations what they take; cuda-bindings does not
WRONG = "not_a_parameter"
SETTINGS = """[mypy]
strict = true
[mypy-cuda.*,distributed.*,dask.*,numba.*,pyarrow.*,pandas.*]
ignore_missing_imports = true
follow_imports = skip
[mypy-merge_bench.*]
follow_imports = silent
[mypy-pynvml.*,ucxx.*,cudf.*]
ignore_missing_imports = true
"""


class Copy(ast.NodeTransformer):
    """The copy of a file.

    Parameters
    ----------
    wrong
        Give every call of a library an argument that no function takes: `{WRONG}_<number>`.
    """

    def __init__(self, reading: Reading, library: Library, *, wrong: bool = False) -> None:
        self.reading, self.library, self.wrong = reading, library, wrong
        self.modules: set[str] = set()
        self.calls: list[str] = []  # the source of each call of a library, by its number
        self._class = ""
        self._function = ""

    def text(self) -> str:
        """Source of the copy, with the imports that it needs."""
        # The nodes are the keys of what was found, so the tree itself is changed: one reading for one copy.
        tree = self.visit(self.reading.tree)
        body = ast.unparse(ast.fix_missing_locations(tree))
        future = "from __future__ import annotations\n"
        imports = "".join(f"import {module}\n" for module in sorted(self.modules))
        return future + "import typing\n" + imports + body.replace(future, "", 1) + "\n"

    def _named(self, node: ast.expr) -> ast.expr | None:
        """The name of the library that an expression is, if it is one and nothing else."""
        kinds = self.reading.kinds.get(node, frozenset()) - {Nothing()}
        if len(kinds) != 1:
            return None
        (kind,) = kinds
        return self._written(kind.path) if isinstance(kind, Name) else None

    def _written(self, path: str) -> ast.expr:
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            entry = self.library.look(".".join(parts[:end]))
            if entry and entry.what == "module":
                self.modules.add(".".join(parts[:end]))
                break
        return ast.parse(path, mode="eval").body

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load):
            return self._named(node) or node
        return ast.Name(self._renamed(node.id), node.ctx)

    def _renamed(self, variable: str) -> str:
        """Another name for a variable that may be called like a library, and would hide it."""
        kinds = self.reading.known(self._function, variable)
        hides = bool(kinds - {Nothing()}) and all(isinstance(kind, (Name, Nothing)) for kind in kinds)
        return f"{variable}_variable" if hides else variable

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return (self._named(node) if isinstance(node.ctx, ast.Load) else None) or self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        return ast.Pass() if any(self._foreign(alias.name) for alias in node.names) else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.Pass() if self._foreign(node.module or "") else node

    def _foreign(self, module: str) -> bool:
        return module.partition(".")[0] in self.reading.roots

    def visit_Call(self, node: ast.Call) -> ast.expr:
        source = ast.unparse(node)
        kinds = self.reading.kinds.get(node.func, frozenset())
        made = self.generic_visit(node)
        assert isinstance(made, ast.Call)
        if any(isinstance(kind, (Name, Method)) and self._typed(kind) for kind in kinds):
            if self.wrong:
                made.keywords.append(ast.keyword(f"{WRONG}_{len(self.calls)}_", ast.Constant(0)))
            self.calls.append(source)
        return made

    def _typed(self, kind: Name | Method) -> bool:
        """Whether the library says what it takes."""
        return (kind.path if isinstance(kind, Name) else kind.cls).partition(".")[0] in TYPED

    # --- annotations ------------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self._class = f"{node.name}."
        made = self.generic_visit(node)
        self._class = ""
        assert isinstance(made, ast.ClassDef)
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        outer, self._function = self._function, self._function or self._class + node.name
        if node.returns:
            kinds = self.reading.known(self._function, "return")
            node.returns = self._filled(node.returns, kinds, absent=Nothing() in kinds)
        made = self.generic_visit(node)
        self._function = outer
        assert isinstance(made, ast.FunctionDef)
        return made

    def visit_arg(self, node: ast.arg) -> ast.arg:
        if node.annotation:
            node.annotation = self._filled(node.annotation, self.reading.known(self._function, node.arg))
        node.arg = self._renamed(node.arg)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        target = node.target
        if isinstance(target, ast.Attribute):
            node.annotation = self._filled(node.annotation, self.reading.known(self._class, target.attr))
        if isinstance(target, ast.Attribute) and _is_none(node.value):
            node.value = self._absent(target.attr)
            return node
        made = self.generic_visit(node)
        assert isinstance(made, ast.AnnAssign)
        return made

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and _is_none(node.value):
            node.value = self._absent(target.attr)
            return node
        made = self.generic_visit(node)
        assert isinstance(made, ast.Assign)
        return made

    def _absent(self, attribute: str) -> ast.expr:
        """None, passed off as what the attribute holds: whether it may be None is not asked in the file itself."""
        classes = sorted(_classes(self.reading.known(self._class, attribute)))
        return ast.parse(f"typing.cast({' | '.join(classes)!r}, None)" if classes else "None", mode="eval").body

    def _filled(self, annotation: ast.expr, kinds: Kinds, *, absent: bool = False) -> ast.expr:
        """An annotation with its `Any` replaced by the classes that were found."""
        classes = sorted(_classes(kinds))
        for cls in classes:
            self._written(cls)
        if not classes:
            return annotation
        text = " | ".join([*classes, "None"] if absent else classes)
        return ast.parse(re.sub(r"\bAny\b", text, ast.unparse(annotation)), mode="eval").body


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _classes(kinds: Kinds) -> Iterator[str]:
    for kind in kinds:
        if isinstance(kind, Instance):
            yield kind.cls
        elif isinstance(kind, Each):
            yield from _classes(kind.items)


def check(copies: Mapping[str, str], folder: Path) -> list[str]:
    """What `mypy --strict` finds in these copies, by the name of the module; written into `folder`."""
    for name, text in copies.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "mypy.ini").write_text(SETTINGS)
    command = [
        sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", str(folder / "cache"), "--no-pretty",
        "--hide-error-context", "--no-error-summary", *(f"{name}.py" for name in copies),
    ]  # fmt: skip
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"mypy ended with status {done.returncode}: {done.stdout}{done.stderr}")
    return [line for line in done.stdout.splitlines() if ": error:" in line]
