"""What goes to a peer and what comes back; who is compared, and who is refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from benchmarks.command import shuffled
from benchmarks.peer import contenders, dask_cuda_merge
from benchmarks.peer.checks import judge
from benchmarks.peer.merge_bench_run import command
from benchmarks.peer.protocol import Job, PeerError, read_outcome
from merge_bench.errors import UsageError, WrongResult
from merge_bench.merge.workload import ExpectedWorkerResult

JOB = Job(1000, 2, 2, iterations=2, warmup=1, fraction=0.3, seed=5, options={"shuffle": "p2p"})
ANSWER = {
    "name": "x",
    "version": "1",
    "wall_seconds": [0.5, 0.25],
    "rows": 600,
    "verified": True,
    "peak_rss_bytes": None,
}


def test_a_job_survives_its_command_line() -> None:
    assert msgspec.json.decode(*JOB.argv(), type=Job) == JOB


def test_the_result_is_checked_after_the_last_warm_up_and_the_last_iteration() -> None:
    assert JOB.checked_after == {0, 2}
    assert Job(1, 1, 1, iterations=1, warmup=0, fraction=0.3, seed=0).checked_after == {0}


def test_data_processed_is_rows_times_item_sizes_of_both_frames() -> None:
    assert JOB.data_bytes == 2 * 2000 * 16


def test_the_answer_is_the_last_object_among_other_output() -> None:
    outcome = read_outcome(f"noise\n{{}}\n{json.dumps(ANSWER)}\nbye\n", 2)
    assert outcome.wall_seconds == [0.5, 0.25]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "without a result"),
        (json.dumps(ANSWER)[:40], "cannot read the result"),
        (json.dumps({**ANSWER, "surprise": 1}), "cannot read the result"),
        (json.dumps({**ANSWER, "wall_seconds": [0.5]}), "reported 1 instead of 2 iterations"),
        (json.dumps({**ANSWER, "wall_seconds": [0.5, 0.0]}), "> 0"),
    ],
)
def test_an_answer_that_is_none_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(PeerError, match=sentence):
        read_outcome(text, 2)


@pytest.mark.parametrize(("rows", "checksum", "bad"), [(3, 7, 1), (2, 7, 0), (3, 8, 0)])
def test_a_wrong_result_is_never_a_number(rows: int, checksum: int, bad: int) -> None:
    judge(ExpectedWorkerResult(3, 7), 3, 7, 0)
    with pytest.raises(WrongResult, match="the result is wrong"):
        judge(ExpectedWorkerResult(3, 7), rows, checksum, bad)


def test_our_command_carries_the_job_and_the_variant() -> None:
    argv = command(JOB, Path("somewhere"))
    assert argv[argv.index("--chunk") + 1] == "1000"
    assert argv[argv.index("--link-rounds") + 1] == "0"
    assert argv[argv.index("--shuffle") + 1] == "p2p"


def test_dask_cuda_command_asks_for_as_many_rows_and_chunks(tmp_path) -> None:
    job = Job(1000, 3, 3, 5, 1, 0.25, 0, {"type": "cpu", "protocol": "ucx"})
    argv = dask_cuda_merge.command(job, tmp_path / "scheduler.json", tmp_path / "results")
    for name, value in (("--chunk-size", "1000"), ("--base-chunks", "3"), ("--runs", "5"), ("--frac-match", "0.25")):
        assert argv[argv.index(name) + 1] == value


def test_names_are_unique_and_ours_is_always_there() -> None:
    names = [contender.name for contender in contenders.CONTENDERS]
    assert len(set(names)) == len(names)
    chosen = [contender.name for contender in contenders.choose(["duckdb*"], gpus=0)]
    assert chosen == ["merge_bench", "duckdb-table", "duckdb-arrow"]


def test_gpu_contenders_are_there_where_there_is_a_gpu() -> None:
    assert not any(contender.gpu for contender in contenders.choose([], gpus=0))
    assert any(contender.name == "ucxx-cudf-merge" for contender in contenders.choose([], gpus=2))
    filtered = [contenders.FILTERED in {each.name for each in contenders.choose([], gpus=gpus)} for gpus in (0, 2)]
    assert filtered == [True, False]  # cudf has no runtime filter


def test_a_name_that_nobody_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"--only spark matches no program on this machine; .* polars-streaming"):
        contenders.choose(["spark"], gpus=0)


def test_a_chunk_that_cannot_fit_is_refused_with_one_that_can() -> None:
    everybody = contenders.choose([], gpus=0)
    large = Job(10**9, 2, 2, 5, 1, 0.3, 0)
    with pytest.raises(UsageError, match=r"--chunk 1,000,000,000 needs about .* the largest --chunk that fits is "):
        contenders.refuse_unfit(everybody, large, 16 << 30)
    contenders.refuse_unfit(everybody, Job(1000, 2, 2, 5, 1, 0.3, 0), 16 << 30)


def test_the_order_of_a_block_follows_from_the_seed() -> None:
    everybody = contenders.choose([], gpus=0)
    assert shuffled(everybody, 1, 0) == shuffled(everybody, 1, 0)
    assert shuffled(everybody, 1, 0) != shuffled(everybody, 1, 1)
    assert sorted(c.name for c in shuffled(everybody, 2, 3)) == sorted(c.name for c in everybody)
