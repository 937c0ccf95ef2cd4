"""Which results belong to one series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from merge_bench.regressions.index import HistoryIndex
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
