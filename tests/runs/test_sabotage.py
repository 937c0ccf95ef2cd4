"""The exchange broken on purpose, from outside the package: a whole run has to notice, and end with status 4."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_bench.merge.distribution import sent_row_bytes
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.records.schema import FailureLine, IterationLine, VerificationLine
from tests.helpers.clusters import dask_cluster
from tests.helpers.runs import SMALL, Finished, command

pytestmark = pytest.mark.cluster

HOOK = Path(__file__).resolve().parents[1] / "helpers" / "sabotage"
WAYS = ("drop", "double", "misroute", "flip", "swap", "replace")
# What the verdict has to say for the synthetic tables, where each row can be checked by itself.
SAYS = {
    "drop": "1 row missing (expected 12,000)",
    "double": "1 row too many (expected 12,000)",
    "misroute": "1 row missing (expected 12,000)",
    "flip": "rows with wrong values: 1 on rank 1",
    "swap": "rows with wrong values: 2 on rank 1",
    "replace": "the checksum over all rows differs",
}


@pytest.fixture(scope="module")
def word(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that says what is broken."""
    return tmp_path_factory.mktemp("word") / "word"


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory, word: Path) -> Iterator[Path]:
    with dask_cluster(tmp_path_factory.mktemp("cluster"), 2, hooked(word)) as file:
        yield file


def hooked(word: Path) -> dict[str, str]:
    root = HOOK.parents[2]
    return {"PYTHONPATH": f"{HOOK}:{root}", "SABOTAGE": str(word)}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    """Real tables of which every right row has one partner."""
    folder = tmp_path_factory.mktemp("pair")
    rng = np.random.default_rng(1)
    rows = 4000
    keys = rng.permutation(rows)
    left = pa.table({"id": keys, "text": [f"text {key}" for key in keys]})
    right = pa.table({"id": rng.permutation(rows), "payload": rng.integers(0, 2**62, rows)})
    for name, table in (("left", left), ("right", right)):
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=1000)
    return ("--left", folder / "left.parquet", "--right", folder / "right.parquet", "--on", "id", "--iterations", "1")


def check_caught(finished: Finished, says: str) -> None:
    finished.check_ended(4)
    document = finished.document
    assert document["verified"] is False
    assert document["error"]["code"] == "wrong-result"
    assert says in document["error"]["message"]
    assert "wrong-result" in {warning["code"] for warning in document["warnings"]}
    (failure,) = finished.of(FailureLine)
    assert failure.message == document["error"]["message"]
    assert finished.of(VerificationLine)[-1].ok is False
    assert len(finished.errors.strip().splitlines()) == 1


def test_an_honest_exchange_passes(
    tmp_path: Path, scheduler_file: Path, word: Path, pair: tuple[str | Path, ...]
) -> None:
    word.unlink(missing_ok=True)
    finished = command(tmp_path, "--scheduler-file", scheduler_file, *pair)
    assert (finished.check_ended(0).document["verified"], finished.document["result_rows"]) == (True, 4000)


@pytest.mark.parametrize("way", WAYS)
def test_synthetic(tmp_path: Path, scheduler_file: Path, word: Path, way: str) -> None:
    word.write_text(way)
    warmup = "0" if way == "drop" else "1"
    finished = command(tmp_path, "--scheduler-file", scheduler_file, *SMALL, "--warmup", warmup)
    check_caught(finished, SAYS[way])


OF_HOW = {
    # A matching right row that goes elsewhere leaves its partner without a match, and has none itself.
    ("left", "misroute"): "rows with wrong values: 1 on rank 1",
    ("right", "misroute"): "rows with wrong values: 1 on rank",
    ("outer", "misroute"): "1 row too many (expected 68,000)",
    ("semi", "misroute"): "1 row missing (expected 12,000)",
    ("anti", "misroute"): "1 row too many (expected 28,000)",
    ("left", "drop matchless left"): "1 row missing (expected 40,000)",
    ("left", "double matchless left"): "1 row too many (expected 40,000)",
    ("right", "drop matchless right"): "1 row missing (expected 40,000)",
    ("outer", "double matchless right"): "1 row too many (expected 68,000)",
    ("anti", "drop matchless left"): "1 row missing (expected 28,000)",
}


QUICK = {("outer", "misroute"), ("left", "drop matchless left")}


@pytest.mark.parametrize(
    ("how", "way"), [pytest.param(*each, marks=[] if each in QUICK else pytest.mark.soak) for each in OF_HOW]
)
def test_rows_without_a_match(tmp_path: Path, scheduler_file: Path, word: Path, how: str, way: str) -> None:
    word.write_text(way)
    options = ("--how", how, "--warmup", "0", "--link-rounds", "0")
    finished = command(tmp_path, "--scheduler-file", scheduler_file, *SMALL, *options)
    check_caught(finished, OF_HOW[how, way])


@pytest.mark.parametrize(
    "way",
    [way if way == "replace" else pytest.param(way, marks=pytest.mark.soak) for way in WAYS],
)
def test_phases_at_once(tmp_path: Path, scheduler_file: Path, word: Path, way: str) -> None:
    """Frames that travel in seven parts: one row of one of them."""
    word.write_text(way)
    options = ("--chunk", "1e6", "--iterations", "1", "--link-rounds", "0", "--warmup", "0", "--pipeline", "on")
    finished = command(tmp_path, "--scheduler-file", scheduler_file, *options)
    check_caught(finished, SAYS[way].replace("12,000", "600,000"))


@pytest.mark.parametrize("pipeline", [pytest.param("off", marks=pytest.mark.soak), "on"])
def test_a_runtime_filter_leaves_out_rows_and_a_lost_one_is_noticed(
    tmp_path: Path, scheduler_file: Path, word: Path, pipeline: str
) -> None:
    options = ("--chunk", "1e6", "--frac-match", "0.01", "--iterations", "1", "--warmup", "0", "--pipeline", pipeline)
    given = ("--scheduler-file", scheduler_file, *options, "--runtime-filter", "on", "--link-rounds", "0")
    word.unlink(missing_ok=True)
    finished = command(tmp_path / "honest", *given).check_ended(0)
    assert (finished.document["verified"], finished.document["result_rows"]) == (True, 20_000)
    (line,) = finished.of(IterationLine)
    for counts in (worker.received_rows for worker in line.workers):
        assert 10_000 * 0.9 < counts.left < 0.03 * 1e6  # the matches, and other keys that pass the Bloom filter
        assert counts.right < 10_000 * 1.1
    word.write_text("drop")
    check_caught(command(tmp_path / "broken", *given), "(expected 20,000)")


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=pytest.mark.soak) if way in ("double", "misroute", "swap") else way for way in WAYS],
)
def test_real_tables(tmp_path: Path, scheduler_file: Path, word: Path, pair: tuple[str | Path, ...], way: str) -> None:
    word.write_text(way)
    full = way in ("flip", "replace")
    engine = {"double": "pandas", "flip": "pandas", "drop": "polars", "swap": "polars"}.get(way, "native")
    finished = command(
        tmp_path, "--scheduler-file", scheduler_file, *pair, "--engine", engine, "--verify", "full" if full else "ends"
    )
    check_caught(finished, "(expected 4,000)" if way in ("drop", "double", "misroute") else "differ")


@pytest.mark.parametrize("way", ["incomplete", "idle"])
@pytest.mark.parametrize(
    ("how", "chunk", "expected"),
    [
        ("inner", "2e4", "12,000"),
        ("left", "1e5", "200,000"),
        pytest.param("anti", "2e4", "28,000", marks=pytest.mark.soak),
    ],
)
def test_broadcast(
    tmp_path: Path, scheduler_file: Path, word: Path, how: str, chunk: str, expected: str, way: str
) -> None:
    """A worker without all of the frame that is sent whole; with 1e5 rows, chunks are partitioned into buckets."""
    word.write_text(way)
    options = (*SMALL, "--chunk", chunk, "--distribution", "broadcast", "--how", how)
    finished = command(tmp_path, "--scheduler-file", scheduler_file, *options)
    lost = how == "left" and way == "incomplete"  # each left row is still there, but of some the match is not
    check_caught(finished, "rows with wrong values" if lost else f"(expected {expected})")


@pytest.mark.parametrize("how", ["inner", pytest.param("semi", marks=pytest.mark.soak)])
def test_an_honest_broadcast(
    tmp_path: Path, scheduler_file: Path, word: Path, pair: tuple[str | Path, ...], how: str
) -> None:
    word.unlink(missing_ok=True)
    finished = command(tmp_path, "--scheduler-file", scheduler_file, *pair, "--distribution", "broadcast", "--how", how)
    document = finished.check_ended(0).document
    assert (document["verified"], document["result_rows"]) == (True, 4000)
    assert (document["plan"]["distribution"], document["plan"]["broadcast_side"]) == ("broadcast", "right")
    for worker in finished.of(IterationLine)[-1].workers:
        assert (worker.received_rows.left, worker.received_rows.right) == (2000, 4000)
        assert worker.sent_bytes.left == 0
        assert worker.sent_bytes.right == 2000 * sent_row_bytes(JoinKind(how), 1)[Side.RIGHT]
    assert document["bandwidth_bytes_per_second"]["harmonic_mean"] > 0
    assert document["link"]["disturbed"] is not None or document["link"]["fraction"] > 0
