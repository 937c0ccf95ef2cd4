"""Joins of several shapes: what each peer is given, and which of them counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from benchmarks import shapes
from benchmarks.peer.contenders import FILTERED, REFERENCE
from benchmarks.peer.ratios import Spread, Standing
from benchmarks.shapes import SHAPES, row
from merge_bench.errors import UsageError
from tests.benchmarks.conftest import Launches


def standing(name: str, wall: float | None, ratio: float | None = None) -> Standing:
    return Standing(name, 1, 0, wall, None, None if ratio is None else Spread.of([ratio]))


def test_the_fastest_variant_of_all_peers_counts() -> None:
    lines = [standing(REFERENCE, 0.1), standing("duckdb-table", 0.3, 3.0), standing("polars-streaming", 0.2, 2.0)]
    cells = ("8,000,000", "100", "polars-streaming", "200", "2.00", "2.00–2.00 (min–max of 1)")
    assert row(SHAPES["few"], 8_000_000, lines)[1:] == (*cells, "-", "-")
    lines.append(standing(FILTERED, 0.04, 0.4))  # ours, too: no peer, however fast
    assert row(SHAPES["few"], 8_000_000, lines)[1:] == (*cells, "40", "5.00")


def test_a_shape_without_a_peer_or_without_merge_bench_has_no_ratio() -> None:
    assert row(SHAPES["few"], 1, [standing(REFERENCE, 0.1), standing("duckdb-table", None)])[2:] == ("100", *"------")
    assert row(SHAPES["few"], 1, [standing(REFERENCE, None), standing("duckdb-table", 1.0)])[2:] == ("-", *"------")


def test_every_peer_gets_the_same_job(tmp_path: Path, launches: Launches) -> None:
    names = ["payloads", "all", "repeated", "zipf", "tiny"]
    argv = ["--chunk", "2e3", "--workers", "1", "--only", ",".join(names), "--blocks", "1", "--results", str(tmp_path)]
    done = CliRunner().invoke(shapes.shapes, [*argv, "--output", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    contenders = {REFERENCE, FILTERED, *shapes.PEERS}
    by_shape = [launches.all[at : at + len(contenders)] for at in range(0, len(launches.all), len(contenders))]
    assert [{launch.contender for launch in of_shape} for of_shape in by_shape] == [contenders] * len(names)
    jobs = [[replace(launch.job, options={}) for launch in of_shape] for of_shape in by_shape]
    assert all(job == of_shape[0] for of_shape in jobs for job in of_shape)
    wide, every, repeated, skewed, tiny = (of_shape[0] for of_shape in jobs)
    assert (wide.payload_columns, every.fraction, skewed.zipf, tiny.rows_per_chunk) == (8, 1.0, 1.2, 200_000)
    assert repeated.tables is not None
    assert repeated.tables.rows == 4 * 600
    table = [line for line in done.output.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 5
    document = json.loads((tmp_path / "out.json").read_text())
    assert list(document["shapes"]) == names


def test_an_unknown_shape_is_refused() -> None:
    done = CliRunner().invoke(shapes.shapes, ["--only", "cube"])
    assert isinstance(done.exception, UsageError)
    assert "cube" in str(done.exception)
