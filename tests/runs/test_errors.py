"""Mistakes of a user: one sentence that names what is wrong, status 2, and nothing started."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import gpu_present
from tests.helpers.runs import SMALL, run


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--chunk", "many"), ("--chunk", "'many'", "25e6")),
        (("--chunk", "0"), ("--chunk",)),
        (("--frac-match", "1.5"), ("--frac-match",)),
        (("--engine", "spark"), ("--engine", "polars")),
        (("--skew", "zipf"), ("--skew",)),
        (("--chunck", "1e6"), ("--chunck",)),
        (("--workers", "2.5"), ("--workers",)),
        (("extra",), ("extra",)),
        (("--timeout",), ("--timeout",)),
    ],
    ids=lambda value: " ".join(value) if value and value[0] in value else None,
)
def test_option_values(tmp_path: Path, options: tuple[str, ...], parts: tuple[str, ...]) -> None:
    run(tmp_path, *options).check_refused(*parts)


def write_config(folder: Path, text: str) -> Path:
    path = folder / "my.cfg"
    path.write_text(text)
    return path


def test_missing_config(tmp_path: Path) -> None:
    run(tmp_path, *SMALL, "--config", "nowhere.cfg").check_refused("nowhere.cfg")


def test_malformed_config(tmp_path: Path) -> None:
    config = write_config(tmp_path, "UCX_TLS=tcp\nexport UCX_X=$(id)\n")
    run(tmp_path, *SMALL, "--config", config).check_refused(f"{config}:2")


def test_option_in_a_config(tmp_path: Path) -> None:
    config = write_config(tmp_path, "\nMERGE_BENCH_CHUNK=lots\n")
    run(tmp_path, "--config", config).check_refused(f"{config}:2", "lots")


def test_option_in_the_environment(tmp_path: Path) -> None:
    run(tmp_path, environ={"MERGE_BENCH_ITERATIONS": "few"}).check_refused("MERGE_BENCH_ITERATIONS", "few")


def test_a_chunk_that_does_not_fit(tmp_path: Path) -> None:
    """The largest chunk that would is named, and is believed when it is asked for."""
    sentence = run(tmp_path / "a", "--chunk", "1e12", "--workers", "2").check_refused("--chunk 1,000,000,000,000")
    largest = sentence.rpartition("the largest --chunk that fits is ")[2]
    assert 1e6 < int(largest.replace(",", "")) < 1e12
    nearly = str(int(0.8 * int(largest.replace(",", ""))))  # others take memory meanwhile
    finished = run(tmp_path / "b", "--chunk", nearly, "--workers", "2", "--dry-run")
    assert finished.status == 0, finished.shown()


def test_missing_parquet_file(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.parquet"
    run(tmp_path, "--left", nowhere, "--right", nowhere, "--on", "id").check_refused(str(nowhere))


def test_unreadable_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    path.write_text("id,x\n1,2\n")
    run(tmp_path, "--left", path, "--right", path, "--on", "id").check_refused(str(path))


def test_missing_key_column(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"ident": [1, 2]}), path)
    run(tmp_path, "--left", path, "--right", path, "--on", "id").check_refused(str(path), "'id'", "ident")


def test_a_result_that_does_not_fit(tmp_path: Path) -> None:
    """One key on all rows of both sides: 10¹² rows."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": pa.array([7] * 1_000_000)}), path)
    run(tmp_path, "--left", path, "--right", path, "--on", "id").check_refused("1,000,000,000,000 rows")


@pytest.mark.skipif(gpu_present(), reason="there is a GPU") if gpu_present() else lambda test: test
def test_cudf_without_a_gpu(tmp_path: Path) -> None:
    run(tmp_path, *SMALL, "--engine", "cudf").check_refused("--engine cudf", "GPU")


def test_dask_with_an_engine_that_it_has_not(tmp_path: Path) -> None:
    run(tmp_path, *SMALL, "--exchange", "dask", "--engine", "polars").check_refused("polars", "pandas")


def test_results_folder_that_is_a_file(tmp_path: Path) -> None:
    place = tmp_path / "results"
    place.write_text("in the way")
    run(tmp_path / "run", *SMALL, "--results", place).check_refused(str(place))


def test_key_of_the_synthetic_tables(tmp_path: Path) -> None:
    run(tmp_path, *SMALL, "--on", "id").check_refused("'key'", "id")


def test_scheduler_file_that_is_not_there(tmp_path: Path) -> None:
    run(tmp_path, *SMALL, "--scheduler-file", tmp_path / "none.json").check_refused("none.json")


def test_scheduler_that_does_not_answer(tmp_path: Path) -> None:
    finished = run(tmp_path, *SMALL, "--scheduler-address", "tcp://127.0.0.1:9", "--start-timeout", "2")
    finished.check_refused("tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    "options", [("--chunk", "many"), ("--config", "nowhere.cfg"), ("--exchange", "dask", "--engine", "polars")]
)
def test_error_as_json(tmp_path: Path, options: tuple[str, ...]) -> None:
    finished = run(tmp_path, *options)
    sentence = finished.check_refused()
    document = json.loads(finished.output)
    assert document["error"]["code"] == "usage"
    assert sentence == f"merge_bench: {document['error']['message']}"


def test_without_json_nothing_is_on_standard_output(tmp_path: Path) -> None:
    finished = run(tmp_path, "--chunk", "many", json_output=False)
    finished.check_refused("--chunk")
    assert finished.output == ""
