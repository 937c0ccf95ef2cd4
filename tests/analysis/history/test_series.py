"""Which results belong to one series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from merge_bench.regressions.document import load_history
from merge_bench.regressions.index import HistoryIndex
from merge_bench.regressions.view import series_label
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign


def test_a_table_is_one_series_whatever_it_is_called(tmp_path: Path) -> None:
    def result(path: str, fingerprint: str | None) -> None:
        table: dict[str, Any] = {"path": path, "rows": 10, "columns": [{"name": "id"}]}
        table |= {"fingerprint": fingerprint} if fingerprint else {}
        workload = {"name": "tables", "keys": ["id"], "left": table, "right": table}
        write_campaign(tmp_path, Script(plan={**plan(), "rows_per_chunk": None, "workload": workload}))

    for path in ("data/orders", "../data/orders/", "/data/orders"):
        result(path, "f1")
    assert [
        len(HistoryIndex([tmp_path]).runs_of_series(series)) for series in HistoryIndex([tmp_path]).list_series()
    ] == [3]
    result("data/orders", "f2")
    result("data/orders", None)
    result("data/orders", None)
    found = HistoryIndex([tmp_path])
    assert sorted(len(found.runs_of_series(series)) for series in found.list_series()) == [1, 2, 3]


def _tables(left: str, fingerprint: str) -> dict[str, Any]:
    columns = [{"name": "id", "source": "order_id"}, {"name": "amount"}]
    frames = {
        "left": {"path": left, "rows": 400_000, "columns": [{"name": "id"}], "fingerprint": fingerprint},
        "right": {"path": "data/lines", "rows": 10, "columns": columns, "fingerprint": "e5"},
    }
    return {"rows_per_chunk": None, "workload": {"name": "tables", "keys": ["id"], **frames}}


def test_the_title_of_a_series_has_the_text_of_its_tables(tmp_path: Path) -> None:
    synthetic = {"workload": {"name": "synthetic", "fraction": 0.3, "payload_columns": 1}}
    for changes in (_tables("data/orders", "3b8386f04711"), {"how": "left"} | _tables("data/new", "c1"), synthetic):
        write_campaign(tmp_path, Script(plan={**plan(), **changes}))
    document = load_history([tmp_path])
    assert sorted(series_label(document, series) for series in document.series) == [
        "optimized: 1,000,000 rows per chunk, 2 workers",
        "optimized: left join, new ⋈ lines on id = order_id (400,000 / 10 rows), 2 workers",
        "optimized: orders ⋈ lines on id = order_id (400,000 / 10 rows), 2 workers",
    ]


def test_series_of_alike_tables_are_distinguished_by_what_differs(tmp_path: Path) -> None:
    synthetic = {"name": "synthetic", "payload_columns": 1}
    write_campaign(tmp_path, Script(plan=plan() | _tables("data/orders", "3b8386f04711")))
    write_campaign(tmp_path, Script(plan=plan() | _tables("data/orders", "c117e2d04711")))
    for fraction in (0.3, 0.5):
        write_campaign(tmp_path, Script(plan=plan(workload=synthetic | {"fraction": fraction})))
    document = load_history([tmp_path])
    assert sorted(series_label(document, series) for series in document.series) == [
        "optimized: 1,000,000 rows per chunk, 2 workers, fraction 0.3",
        "optimized: 1,000,000 rows per chunk, 2 workers, fraction 0.5",
        "optimized: orders ⋈ lines on id = order_id (400,000 / 10 rows), 2 workers, left content 3b8386f0",
        "optimized: orders ⋈ lines on id = order_id (400,000 / 10 rows), 2 workers, left content c117e2d0",
    ]
