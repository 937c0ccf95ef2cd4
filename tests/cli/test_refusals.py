"""Mistakes of a user: one sentence that names what is wrong, status 2, and nothing started."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_bench.config import allowed_transports
from merge_bench.config.ucx_info import find_ucx_info, read_installed_ucx
from merge_bench.errors import UsageError
from tests.conftest import gpu_present
from tests.helpers.runs import SMALL, command, run
from tests.helpers.synthetic_campaigns import write_campaign


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
    command(tmp_path, *options).check_refused(*parts)


@pytest.mark.parametrize(("typed", "meant"), [("--chnk", "--chunk"), ("--itertions", "--iterations")])
def test_the_option_nearest_to_one_that_does_not_exist_is_named_first(tmp_path: Path, typed: str, meant: str) -> None:
    command(tmp_path, typed, "3").check_refused(typed, f"did you mean {meant} or ")


def test_each_error_of_a_config_has_a_line_of_its_own(tmp_path: Path) -> None:
    config = write_config(tmp_path, "UCX_RNDV_SCHMEE=am\nUCX_TLSS=tcp\n")
    finished = command(tmp_path, *SMALL, "--config", config)
    assert finished.status == 2
    lines = finished.errors.splitlines()
    assert [sum(name in line for line in lines) for name in ("UCX_RNDV_SCHMEE", "UCX_TLSS")] == [1, 1]
    assert not any("UCX_RNDV_SCHMEE" in line and "UCX_TLSS" in line for line in lines)


def write_config(folder: Path, text: str) -> Path:
    path = folder / "my.cfg"
    path.write_text(text)
    return path


def test_missing_config(tmp_path: Path) -> None:
    command(tmp_path, *SMALL, "--config", "nowhere.cfg").check_refused("nowhere.cfg")


def test_malformed_config(tmp_path: Path) -> None:
    config = write_config(tmp_path, "UCX_TLS=tcp\nexport UCX_X=$(id)\n")
    command(tmp_path, *SMALL, "--config", config).check_refused(f"{config}:2")


def test_option_in_a_config(tmp_path: Path) -> None:
    config = write_config(tmp_path, "\nMERGE_BENCH_CHUNK=lots\n")
    command(tmp_path, "--config", config).check_refused(f"{config}:2", "lots")


def test_option_in_the_environment(tmp_path: Path) -> None:
    command(tmp_path, environ={"MERGE_BENCH_ITERATIONS": "few"}).check_refused("MERGE_BENCH_ITERATIONS", "few")


def test_a_chunk_that_does_not_fit(tmp_path: Path) -> None:
    """The largest chunk that would is named, and is believed when it is asked for."""
    sentence = command(tmp_path, "--chunk", "1e12", "--workers", "2").check_refused("--chunk 1,000,000,000,000")
    largest = sentence.rpartition("the largest --chunk that fits is ")[2]
    assert 1e6 < int(largest.replace(",", "")) < 1e12
    nearly = str(int(0.8 * int(largest.replace(",", ""))))  # others take memory meanwhile
    finished = command(tmp_path, "--chunk", nearly, "--workers", "2", "--dry-run")
    assert finished.status == 0, finished.errors


def test_workers_that_do_not_fit(tmp_path: Path) -> None:
    """The largest number that would is named, and is believed when it is asked for, a little fewer in fact."""
    sentence = command(tmp_path, "--chunk", "1e5", "--workers", "100000").check_refused("--chunk 100,000")
    named = sentence.partition("use --workers ")[2].removesuffix(" or fewer").rstrip()
    finished = command(tmp_path, "--chunk", "1e5", "--workers", max(1, int(0.8 * int(named))), "--dry-run")
    assert finished.status == 0, finished.errors


def test_missing_parquet_file(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.parquet"
    command(tmp_path, "--left", nowhere, "--right", nowhere, "--on", "id").check_refused(str(nowhere))


def test_unreadable_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    path.write_text("id,x\n1,2\n")
    command(tmp_path, "--left", path, "--right", path, "--on", "id").check_refused(str(path))


def test_missing_key_column(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"ident": [1, 2]}), path)
    command(tmp_path, "--left", path, "--right", path, "--on", "id").check_refused(str(path), "'id'", "ident")


def test_a_result_that_does_not_fit(tmp_path: Path) -> None:
    """One key on all rows of both sides: 10¹² rows."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": pa.array([7] * 1_000_000)}), path)
    command(tmp_path, "--left", path, "--right", path, "--on", "id").check_refused("1,000,000,000,000 result rows")


@pytest.mark.skipif(gpu_present(), reason="there is a GPU") if gpu_present() else lambda test: test
def test_cudf_without_a_gpu(tmp_path: Path) -> None:
    command(tmp_path, *SMALL, "--engine", "cudf").check_refused("--engine cudf", "GPU")


def test_dask_with_an_engine_that_it_has_not(tmp_path: Path) -> None:
    command(tmp_path, *SMALL, "--exchange", "dask", "--engine", "polars").check_refused("polars", "pandas")


def test_results_folder_that_is_a_file(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("in the way")
    command(tmp_path, *SMALL, "--results", place).check_refused(str(place))


def test_key_of_the_synthetic_tables(tmp_path: Path) -> None:
    command(tmp_path, *SMALL, "--on", "id").check_refused("'key'", "id")


def test_scheduler_file_that_is_not_there(tmp_path: Path) -> None:
    command(tmp_path, *SMALL, "--scheduler-file", tmp_path / "none.json").check_refused("none.json")


def test_scheduler_that_does_not_answer(tmp_path: Path) -> None:
    finished = command(tmp_path, *SMALL, "--scheduler-address", "tcp://127.0.0.1:9", "--start-timeout", "2")
    finished.check_refused("tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    "options", [("--chunk", "many"), ("--config", "nowhere.cfg"), ("--exchange", "dask", "--engine", "polars")]
)
def test_error_as_json(tmp_path: Path, options: tuple[str, ...]) -> None:
    finished = command(tmp_path, *options)
    sentence = finished.check_refused()
    error = finished.document["error"]
    assert error["code"] == "usage"
    assert sentence == f"merge_bench: {error['message']}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--configs", "tcp,tcp"), ("--configs", "twice")),
        (("--configs", "tcp,one/tcp.cfg"), ("two configs have the name tcp", "one/tcp.cfg")),
        (("--configs", "tcp,no-such"), ("no-such",)),
        (("--configs", "tcp", "--config", "tcp"), ("--config", "--configs", "cannot be combined")),
        (("--blocks", "0"), ("--blocks", "at least 1")),
        (("--chunk", "1e3,1000"), ("--chunk", "twice")),
        (("--chunk", "1e3,1e12"), ("1,000,000,000,000", "the largest --chunk")),
        (("--workers", "1,0"), ("--workers", "at least 1")),
    ],
)
def test_wrong_sweeps(tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...]) -> None:
    one = tmp_path / "run" / "one"
    one.mkdir(parents=True)
    (one / "tcp.cfg").write_text("UCX_TLS=tcp\n")
    finished = command(tmp_path / "run", *options)
    finished.check_refused(*words)
    assert not finished.results.exists()


def test_results_that_cannot_be_written(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    finished = command(tmp_path, *SMALL, "--configs", "tcp,default", "--results", taken / "results")
    assert finished.status == 2, finished.errors
    assert f"cannot create the results folder {taken}/results" in finished.errors
    finished.check_clean()


@pytest.fixture(scope="module")
def absent() -> str:
    """A transport that the UCX installed here does not have."""
    try:
        there = read_installed_ucx(find_ucx_info()).transports
    except UsageError as error:
        pytest.skip(f"needs a UCX to ask: {error}")
    return next(
        name for name in ("rc", "knem", "ugni") if not allowed_transports.resolve_transport_aliases([name]) & set(there)
    )


def test_a_transport_that_cannot_be_here_is_refused(tmp_path: Path, absent: str) -> None:
    one = command(tmp_path, *SMALL, "--require-transport", absent)
    assert one.status == 5
    assert not one.results.exists()
    assert one.document["error"]["code"] == "gate-not-met"
    assert f"--require-transport {absent} cannot be met" in one.document["error"]["message"]
    one.check_clean()


def test_a_config_that_leaves_no_transport_is_refused(tmp_path: Path, absent: str) -> None:
    (tmp_path / "mine.cfg").write_text(f"UCX_TLS={absent}\n")
    one = command(tmp_path, *SMALL, "--config", tmp_path / "mine.cfg")
    one.check_refused(f"UCX_TLS={absent}", "leaves no transport for two workers")
    assert not one.results.exists()


def test_a_config_with_a_transport_that_is_missing_is_warned_of(tmp_path: Path, absent: str) -> None:
    (tmp_path / "mine.cfg").write_text(f"UCX_TLS=tcp,{absent}\n")
    one = command(tmp_path, *SMALL, "--config", tmp_path / "mine.cfg", "--dry-run")
    assert one.status == 0
    assert re.search(rf"warning: .*has no {absent}", one.errors)


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (("--pipeline", "on"), True),
        (("--pipeline", "off"), False),
        (("--pipeline", "on", "--workers", "1"), False),
        (("--pipeline", "on", "--hosts", "hosts"), False),
    ],
)
def test_a_pipeline_on_one_host_is_warned_of(tmp_path: Path, options: tuple[str, ...], warned: bool) -> None:
    (tmp_path / "hosts").write_text("n1\nn2\n")
    one = command(tmp_path, *SMALL, *options, "--dry-run")
    assert one.status == 0
    assert ("a merge is usually slower with --pipeline on" in one.errors) == warned


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--require-transport", "sysvv"), "sysv"),
        (("--require-transport", "tcp", "--exchange", "dask"), "--exchange dask"),
        (("--require-transport", "tcp", "--workers", "1"), "needs at least two workers"),
    ],
)
def test_gates_that_make_no_sense_are_refused(tmp_path: Path, options: tuple[str, ...], part: str) -> None:
    command(tmp_path, *SMALL, *options).check_refused("--require-transport", part)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("tcp.cfg", "optimized.cfg"), ("'optimized.cfg' is a second config", "--configs A,B")),
        (("tcp.cfg", "--config", "optimized.cfg"), ("is a second config",)),
    ],
)
def test_a_run_has_one_config(tmp_path: Path, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    command(tmp_path, *words, *SMALL).check_refused(*parts)


@pytest.mark.parametrize("several", [2, 3])
def test_a_pattern_that_matches_several_earlier_results_is_refused_with_the_newest(
    tmp_path: Path, several: int
) -> None:
    earlier = [str(write_campaign(tmp_path / "earlier" / str(place))) for place in range(several)]
    renamed = [str(Path(each).rename(tmp_path / f"2026110{9 - at}T000000Z-tcp")) for at, each in enumerate(earlier)]
    one = command(tmp_path, "--against", *renamed, "--fail-on", "slower", *SMALL)
    one.check_refused(f"takes one result, but {several} were given", f"such as the newest: --against {renamed[0]}")


def test_transports_of_one_worker(tmp_path: Path) -> None:
    command(tmp_path, "--workers", "1", verb=("transports",)).check_refused("pairs of workers")


@pytest.mark.cluster
def test_without_json_nothing_is_on_standard_output(tmp_path: Path) -> None:
    """A process of its own, which leaves nothing behind."""
    finished = run(tmp_path, "--chunk", "many", json_output=False)
    finished.check_refused("--chunk")
    assert finished.output == ""
