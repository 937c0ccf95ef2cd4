"""A use of a library is found wherever it is written."""

from __future__ import annotations

import textwrap

import pytest

from tests.rapids import record, sources
from tests.rapids.record import Recorded
from tests.rapids.uses import Reading

TABLE = "pylibcudf.table.Table"


def read(source: str) -> Reading:
    return Reading(textwrap.dedent(source), Recorded(record.read()), sources.LIBRARIES)


@pytest.mark.parametrize(
    "source",
    [
        "import pylibcudf\ndef f(t):\n    pylibcudf.Table.from_arrow(t).num_rows()",
        "def f(t):\n    import pylibcudf as plc\n    made = plc.Table.from_arrow\n    made(t).num_rows()",
        """
        def libraries():
            import pylibcudf, rmm
            return pylibcudf, rmm

        class Engine:
            def __init__(self) -> None:
                self._plc, self._rmm = libraries()
                self._chunks: dict[str, Any] = {}

            def load(self, table) -> None:
                plc, rmm = self._plc, self._rmm
                self._chunks["left"] = plc.Table.from_arrow(table)

            def rows(self) -> int:
                return sum(count(table) for table in self._chunks.values())

        def count(table: Any) -> int:
            return table.num_rows()
        """,
        """
        import contextlib, pylibcudf

        @contextlib.contextmanager
        def library():
            yield pylibcudf

        def f(tables):
            kept = []
            with library() as plc:
                for one in plc.copying.slice(plc.Table.from_arrow(tables), [0, 1]):
                    kept.append((1, one))
            for number, table in kept:
                print(f"{table.num_rows()}")
        """,
        "import pylibcudf\ndef f(maps: tuple[int, pylibcudf.Table]):\n    return maps[1].num_rows() if maps else 0",
        "from pylibcudf import Table\ndef f(ask, t):\n    return call(Table(t).num_rows)\n"
        "def call(question, *about):\n    return question(*about)",
        "import pylibcudf\ndef f(x):\n    while isinstance(x, pylibcudf.Table):\n        x = x.num_rows()",
    ],
)
def test_a_method_of_a_result_is_found(source: str) -> None:
    reading = read(source)
    assert reading.problems == []
    calls = [use for use in reading.uses if use.path == f"{TABLE}.num_rows" and use.positional == 0]
    assert len(calls) == 1


def test_arguments_are_counted() -> None:
    reading = read(
        "import rmm\ndef f(n, more):\n    rmm.DeviceBuffer(1, *more)\n    rmm.DeviceBuffer(size=n, stream=0)"
    )
    calls = [(use.line, use.positional, use.keywords) for use in reading.uses if use.path == "rmm.DeviceBuffer"]
    assert calls == [(3, None, ()), (4, 0, ("size", "stream"))]


def test_what_nothing_shows_is_a_problem() -> None:
    (problem,) = read("import rmm\ndef f(table: Any):\n    return table.num_rows()").problems
    assert (problem.line, problem.text) == (3, "cannot find the class of table, whose .num_rows is used")


def test_our_own_names_are_none_of_a_library() -> None:
    reading = read("import rmm\nclass A:\n    def size(self):\n        return self.rows + len(self.names())")
    assert [use.path for use in reading.uses] == ["rmm"]
    assert reading.problems == []
