"""`tools.measure_house` on a small tree in which everything that it counts is there once or twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tools.import_circles import circles
from tools.measure_house import LISTED, MEASURES, main, measure

LONG = "\n".join(f"LINE_{number} = {number}" for number in range(40))
DOCS = "docs"  # so that test_docs does not look for these pages here
FILES = {
    "merge_bench/__init__.py": "",
    "merge_bench/config/options.py": 'values = {}\nvalues["chunk"]\n',
    "merge_bench/records/reader.py": 'RECORDS = "records.jsonl"\nopen(RECORDS)\n',
    "merge_bench/records/long.py": f'"""Long,\n\nby code."""\n\n{LONG}\n',
    "merge_bench/records/comments.py": f'"""Long,\n\nby a comment."""\n\n# Nothing\n\n{LONG.partition(chr(10))[2]}\n',
    "merge_bench/history.py": 'import os\nfrom merge_bench.records.reader import RECORDS\n\nos.stat(f"x/{RECORDS}")\n',
    "merge_bench/merge/plan.py": """\
from __future__ import annotations
from typing import TYPE_CHECKING
from merge_bench.merge import worker
if TYPE_CHECKING:
    from merge_bench.merge.exchange.dask import D

a = [1,   2]  # fmt: skip
text = "# fmt: skip"

def choose(values, plan, other, found, known=lambda one: one):
    each = [one for one in values.values()]
    if values["exchange"] == "dask" or plan.exchange in ("ucx", "nccl") or plan.protocol == "ucx":
        each = values.get("chunk"), self.values["Device(s)"]
    match plan.exchange:
        case "ucx":
            pass
    if (made := any((asked := x) for x in other)):
        return values[other], other["chunk"]
""",
    "merge_bench/merge/worker.py": "def step():\n    from . import plan\n",
    "merge_bench/merge/exchange/dask.py": 'from ..plan import choose\nplan.exchange == "dask"\n',
    "tests/test_plan.py": """\
from merge_bench.merge.plan import choose, _hidden

class TestPlan:
    def test(self, monkeypatch):
        monkeypatch.setattr(choose, "x", 1)
        self._own, os._exit, choose.__name__, row._replace
        choose._hidden = other._also
""",
    f"{DOCS}/README.md": "# Pages\n",
    f"{DOCS}/page.md": "# Page\n\n" + "x" * 130 + "\n",
    "docs/reference/options.md": "# Options\n\n<!-- Generated. Run me. -->\n\n" + "x" * 200 + "\n",
    "docs/decisions.md": "# Decisions\n\n## Contents\n\n### 1. One\n\n### 20. Two\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def figures(tree: Path) -> dict[str, Any]:
    return {figure["name"]: figure for figure in measure(tree)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("files in the package", 9),
        ("lines in the package", sum(FILES[name].count("\n") for name in FILES if name.startswith("merge_bench/"))),
        ("circles of files", 1),
        ("circles with types", 1),
        ("look-ups of options", 2),
        ("tests of an exchange's name", 3),
        ("readers of a results folder", 1),
        ("# fmt: skip", 1),
        ("files under 40 lines of code", 7),
        ("decisions", 2),
        ("lines of decisions", 7),
        ("pages of docs by hand", 1),
        ("longest line of these pages", 130),
        ("private accesses in tests", 3),
        ("replaced attributes in tests", 1),
        ("variables without a noun", 5),
    ],
)
def test_each_figure(name: str, value: int, figures: dict[str, Any]) -> None:
    assert figures[name]["value"] == value, figures[name]["where"]


def test_places_are_those_that_were_counted(figures: dict[str, Any]) -> None:
    assert figures["circles of files"]["where"] == ["merge_bench.merge.plan merge_bench.merge.worker"]
    assert figures["circles with types"]["where"] == [
        "merge_bench.merge.exchange.dask merge_bench.merge.plan merge_bench.merge.worker"
    ]
    assert figures["readers of a results folder"]["where"] == ["merge_bench/history.py: stat"]
    assert figures["longest line of these pages"]["where"] == [f"{DOCS}/page.md:3"]
    assert "merge_bench/records/comments.py" in figures["files under 40 lines of code"]["where"]
    names = {place.split()[-1] for place in figures["variables without a noun"]["where"]}
    assert names == {"found", "known", "each", "made", "asked"}


def test_circles_that_share_a_module_are_one() -> None:
    graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(graph) == [("a", "b", "c"), ("d", "e")]


def test_the_table_has_a_line_for_each_figure_and_json_the_same(tree: Path) -> None:
    shown = CliRunner().invoke(main, [str(tree)])
    assert shown.exit_code == 0
    assert all(sum(line.startswith(name) for line in shown.output.splitlines()) >= 1 for name, *_ in MEASURES)
    assert all(f"\n{name}:" in shown.output for name in LISTED)
    printed = CliRunner().invoke(main, ["--json", str(tree)])
    assert json.loads(printed.output)["figures"] == measure(tree)
