"""Blocks of a comparison in which a program does not end in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from benchmarks.peer.comparison import Comparison
from benchmarks.peer.contenders import REFERENCE
from benchmarks.peer.protocol import Job, PeerError
from tests.benchmarks.conftest import Launches

JOB = Job(1000, 2, 2, iterations=1, warmup=1, fraction=0.3, seed=5)
LIMIT = 7.0
Compared = tuple[Comparison, int, list[tuple[int, str]]]


@pytest.fixture
def compared(tmp_path: Path, launches: Launches) -> Callable[..., Compared]:
    """Runs three blocks; gives how many were run and every launch.

    The contenders `slow` reach the limit, `broken` fail at once; `left`: seconds for all blocks.
    """

    def compare(
        names: Sequence[str],
        slow: Collection[str],
        left: float = math.inf,
        broken: Collection[str] = (),
        patience: int = 9,
    ) -> Compared:
        walls: dict[str, float | None] = {**dict.fromkeys(slow, math.inf), **dict.fromkeys(broken)}
        launches.wall = lambda launch: walls.get(launch.contender, 0.5)
        one = Comparison.of(names, JOB, tmp_path, LIMIT)
        one.settle, one.patience = 0.0, patience
        done = one.run(3, seed=1, until=launches.clock.now + left)
        one.finish()
        return one, done, [(sample.block, sample.contender) for sample in one.samples]

    return compare


def test_a_peer_that_fails_too_often_is_not_launched_again_and_merge_bench_is(
    compared: Callable[..., Compared],
) -> None:
    broken = {"pandas", REFERENCE}
    _, done, launches = compared(["pandas", "duckdb-table"], (), broken=broken, patience=2)
    assert done == 3
    blocks = {name: [block for block, each in launches if each == name] for name in [*broken, "duckdb-table"]}
    assert blocks == {"pandas": [0, 1], REFERENCE: [0, 1, 2], "duckdb-table": [0, 1, 2]}
    _, done, launches = compared(["pandas"], (), broken={"pandas"}, patience=1)
    assert (done, len(launches)) == (1, 2)


def test_a_peer_that_was_stopped_is_not_launched_again(
    compared: Callable[..., Compared], capsys: pytest.CaptureFixture[str]
) -> None:
    one, done, launches = compared(["pandas", "duckdb-table"], {"pandas"})
    assert done == 3
    assert [block for block, name in launches if name == "pandas"] == [0]
    for name in (REFERENCE, "duckdb-table"):
        assert [block for block, each in launches if each == name] == [0, 1, 2]
    lines = {line.contender: line for line in one.standings()}
    assert (lines["pandas"].failed, lines["pandas"].ratio) == (1, None)
    assert lines["duckdb-table"].failed == 0
    assert one.status == PeerError.exit_status
    progress = capsys.readouterr().err
    assert progress.count("pandas is not launched again, since it reached the time limit") == 1
    assert "[7/7] block 3" in progress


def test_the_comparison_ends_where_only_merge_bench_would_be_left(compared: Callable[..., Compared]) -> None:
    _, done, launches = compared(["pandas"], {"pandas"})
    assert done == 1
    assert sorted(launches) == [(0, REFERENCE), (0, "pandas")]


def test_merge_bench_itself_is_launched_in_every_block(compared: Callable[..., Compared]) -> None:
    _, done, launches = compared(["pandas"], {REFERENCE})
    assert (done, len(launches)) == (3, 6)
    assert compared([REFERENCE], ())[1] == 3


def test_what_a_stopped_launch_took_is_not_expected_of_later_blocks(compared: Callable[..., Compared]) -> None:
    # Block 1 takes 1 + 1 + 7 s; blocks 2 and 3 take 2 s each, and fit into the rest.
    assert compared(["pandas", "duckdb-table"], {"pandas"}, left=14.0)[1] == 3
