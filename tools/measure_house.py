"""Measures how the source tree is built: its size, its circles, and what is meant to become less.

`python -m tools.measure_house [ROOT]` prints one line for each figure, with its goal and how it is counted; `--json`
has the places that were counted, too. Nothing of the tree is run: figures come from texts and from syntax trees.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import click

from tools.import_circles import Source, circles, import_graph, read_sources

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "merge_bench"
EXCHANGES = ("ucx", "dask")
VAGUE_NAMES = frozenset({"each", "found", "one", "known", "asked", "made"})
SMALL_FILE = 40
OPENING = re.compile(r"r?glob|i?open|stat|is_file|read_\w+")
PRIVATE = re.compile(r"_[a-z]\w*", re.I)
NAMED_TUPLE = frozenset({"_asdict", "_fields", "_make", "_replace"})
GENERATED = "<!-- Generated."
NOT_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)


def code_lines(source: Source) -> int:
    """Lines with code: no blank lines, comments, or strings that stand alone, as docstrings do."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in NOT_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in source.nodes:
        if isinstance(node, ast.Expr) and _text(node.value) is not None:
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_option(key: ast.AST) -> bool:
    return re.fullmatch("[a-z_]+", _text(key) or "") is not None


def _looks_up_an_option(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value) == "values" and _is_option(node.slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return _last_name(node.func.value) == "values" and _is_option(node.args[0])
    return False


def _asks_for_an_exchange(node: ast.AST) -> bool:
    """Whether something called `exchange` is compared with an exchange's name, by an operator or by a `case`."""
    if isinstance(node, ast.Match):
        operands: list[ast.AST] = [node.subject, *(case.pattern for case in node.cases)]
    elif isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    else:
        return False

    def names(operand: ast.AST) -> bool:
        return any(_last_name(part) == "exchange" or _text(part) == "exchange" for part in ast.walk(operand))

    def is_one_of(operand: ast.AST) -> bool:
        return any(_text(part) in EXCHANGES for part in ast.walk(operand))

    return any(names(operand) for operand in operands) and any(is_one_of(operand) for operand in operands)


def _opens_records(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call) or not OPENING.fullmatch(_last_name(node.func)):
        return False
    return any(_last_name(part) == "RECORDS" or "records.jsonl" in (_text(part) or "") for part in ast.walk(node))


def _is_private_access(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(PRIVATE.fullmatch(alias.name) for alias in node.names)
    if not isinstance(node, ast.Attribute) or not PRIVATE.fullmatch(node.attr) or node.attr in NAMED_TUPLE:
        return False
    return _last_name(node.value) not in ("self", "cls", "os", "sys")


def _bound_names(node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Names that assignments, loops, parameters and patterns bind, with their scope; not those of comprehensions."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield scope, name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
            yield scope, name
    inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else scope
    for field, value in ast.iter_fields(node):
        if (isinstance(node, ast.comprehension) and field == "target") or (
            isinstance(node, ast.Lambda) and field == "args"
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _bound_names(child, inner)


def vague_variables(source: Source) -> list[str]:
    """Variables without a noun, once for each scope that binds them."""
    bound = dict.fromkeys(_bound_names(source.tree, source.tree))
    return [f"{source.at(scope)} {name}" for scope, name in bound if name in VAGUE_NAMES]


class House:
    """A tree: the package's files, the tests, and the pages of the documentation by their path."""

    def __init__(self, root: Path) -> None:
        self.package = read_sources(root, PACKAGE)
        self.tests = read_sources(root, "tests")
        pages = {path.relative_to(root).as_posix(): path for path in sorted(root.glob("docs/**/*.md"))}
        self.pages = {name: path.read_text(encoding="utf-8") for name, path in pages.items()}
        self.decisions = self.pages.pop("docs/decisions.md", "")
        self.by_hand = {name: text for name, text in self.pages.items() if GENERATED not in text}

    def find(self, wanted: Callable[[ast.AST], bool], *not_in: str) -> list[str]:
        """Places in the package with a node that is wanted, but for files whose path matches one of `not_in`."""
        sources = [source for source in self.package if not any(re.search(path, source.path) for path in not_in)]
        return [f"{source.at(node)} {ast.unparse(node)}" for source in sources for node in source.nodes if wanted(node)]

    def find_in_tests(self, wanted: Callable[[ast.AST], bool]) -> list[str]:
        """The same in the tests."""
        return [source.at(node) for source in self.tests for node in source.nodes if wanted(node)]

    def circles(self, with_types: bool) -> list[str]:
        """Circles of files, each as its modules."""
        return [" ".join(group) for group in circles(import_graph(self.package, with_types))]

    def small_files(self) -> list[str]:
        """Files of few lines; a folder's ``__init__.py`` may be short."""
        files = (source for source in self.package if not source.path.endswith("/__init__.py"))
        return [source.path for source in files if code_lines(source) < SMALL_FILE]

    def readers(self) -> list[str]:
        """Modules that open records, each with the functions by which it does."""
        calls: dict[str, set[str]] = {}
        for source in self.package:
            if "/records/" not in source.path:
                names = {_last_name(node.func) for node in source.nodes if _opens_records(node)}
                calls |= {source.path: names} if names else {}
        return [f"{path}: {', '.join(sorted(names))}" for path, names in calls.items()]

    def longest_line(self) -> tuple[int, list[str]]:
        """Of the pages by hand: how long, and where."""
        lines = [
            (len(line), [f"{name}:{number}"])
            for name, text in self.by_hand.items()
            for number, line in enumerate(text.splitlines(), 1)
        ]
        return max(lines, default=(0, []))


OWN_FILE = rf"/({'|'.join(EXCHANGES)})(_\w+)?\.py$"
Counted = int | list[str] | tuple[int, list[str]]
"""A number, the places whose number it is, or a number with its place."""
MEASURES: Sequence[tuple[str, str, str, Callable[[House], Counted]]] = (
    ("files in the package", "≤ 230", f"Python files below {PACKAGE}/", lambda house: len(house.package)),
    (
        "lines in the package",
        "≤ 40000",
        "all lines of these files",
        lambda house: sum(source.text.count("\n") for source in house.package),
    ),
    (
        "circles of files",
        "0",
        "groups of modules that import each other, inside functions too",
        lambda house: house.circles(with_types=False),
    ),
    (
        "circles with types",
        "0",
        "the same with imports for type checking only",
        lambda house: house.circles(with_types=True),
    ),
    (
        "look-ups of options",
        "0",
        '`values["…"]` and `values.get("…")` outside config/, by syntax tree',
        lambda house: house.find(_looks_up_an_option, "/config/"),
    ),
    (
        "tests of an exchange's name",
        "0",
        "something called `exchange` beside a name of one in a comparison or `match`,"
        " outside files called after an exchange",
        lambda house: house.find(_asks_for_an_exchange, OWN_FILE),
    ),
    (
        "readers of a results folder",
        "1",
        "modules outside records/ that call open, stat, glob, is_file or read_… with the name of records.jsonl",
        lambda house: house.readers(),
    ),
    (
        "# fmt: skip",
        "≤ 30",
        "lines of the package that end so",
        lambda house: [source.path for source in house.package for _ in re.findall(r"# fmt: skip$", source.text, re.M)],
    ),
    (
        f"files under {SMALL_FILE} lines of code",
        "≤ 20",
        "but __init__.py; without blank lines, comments and docstrings",
        lambda house: house.small_files(),
    ),
    (
        "decisions",
        "≤ 60",
        "numbered headings of docs/decisions.md",
        lambda house: len(re.findall(r"^#+ \d+\. ", house.decisions, re.M)),
    ),
    ("lines of decisions", "", "all lines of docs/decisions.md", lambda house: house.decisions.count("\n")),
    (
        "pages of docs by hand",
        "≤ 20",
        "docs/**/*.md but decisions.md, generated pages, and README.md, which lists them",
        lambda house: [name for name in house.by_hand if name != "docs/README.md"],
    ),
    ("longest line of these pages", "≤ 120", "characters, tables and code too", lambda house: house.longest_line()),
    (
        "private accesses in tests",
        "",
        "`object._name` and `import _name`, not of self, cls, os, sys, named tuples",
        lambda house: house.find_in_tests(_is_private_access),
    ),
    (
        "replaced attributes in tests",
        "",
        "`monkeypatch.setattr` and `setattr` of other objects",
        lambda house: house.find_in_tests(lambda node: isinstance(node, ast.Attribute) and node.attr == "setattr"),
    ),
    (
        "variables without a noun",
        "0",
        f"{', '.join(sorted(VAGUE_NAMES))}: once for each function, class or module that"
        " binds one outside comprehensions and lambdas",
        lambda house: [place for source in house.package for place in vague_variables(source)],
    ),
)
LISTED = ("circles of files", "readers of a results folder", "longest line of these pages")


def measure(root: Path) -> list[dict[str, Any]]:
    """All figures of a tree: `name`, `value`, `goal`, `how`, and `where`: the places that were counted, if any."""
    house, figures = House(root), []
    for name, goal, how, count in MEASURES:
        counted = count(house)
        if isinstance(counted, list):
            counted = len(counted), counted
        value, where = counted if isinstance(counted, tuple) else (counted, [])
        figures.append({"name": name, "value": value, "goal": goal, "how": how, "where": where})
    return figures


@click.command(help=__doc__.partition("\n")[0])
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=ROOT)
@click.option("--json", "as_json", is_flag=True, help="Print one document, with the places that were counted.")
def main(root: Path, as_json: bool) -> None:
    """The program."""
    figures = measure(root)
    if as_json:
        click.echo(json.dumps({"figures": figures}, indent=1, ensure_ascii=False))
        return
    width = max(len(figure["name"]) for figure in figures)
    click.echo(f"{'':{width}}  {'today':>6}  {'goal':>7}  counted are")
    for figure in figures:
        click.echo(f"{figure['name']:{width}}  {figure['value']:>6}  {figure['goal']:>7}  {figure['how']}")
    for figure in figures:
        if figure["name"] in LISTED:
            click.echo(f"\n{figure['name']}:", nl=False)
            click.echo("".join(f"\n  {place}" for place in figure["where"]) or " none")


if __name__ == "__main__":
    main()
