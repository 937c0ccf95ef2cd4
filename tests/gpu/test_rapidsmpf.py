"""The data plane rapidsmpf on a GPU: two processes on one, each a rank; the merged rows are compared with Arrow's."""

from __future__ import annotations

import pytest

from tests.helpers.process_pair import big_tables, check_pair
from tests.helpers.rapidsmpf_ranks import merge_ranks

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    for name in ("pylibcudf", "rapidsmpf", "cudf_streaming"):
        pytest.importorskip(name, reason=f"the stack in this environment has no {name}: set up cu12 or cu13")


@pytest.mark.parametrize("rows", [2_000, 2_000_000])
def test_two_ranks_on_one_gpu(rows: int) -> None:
    left, right, keys = big_tables(rows)
    ranks = merge_ranks((left, right), keys, 2)
    check_pair(left, right, keys, [(rank.table, []) for rank in ranks])
    for rank in ranks:
        sent = rank.measured.worker.sent_bytes
        rows_sent = 2 * (sent.left + sent.right)  # two iterations
        assert 0 < rows_sent <= rank.statistics["shuffle-payload-send"] < 1.01 * rows_sent + 100_000  # with padding
