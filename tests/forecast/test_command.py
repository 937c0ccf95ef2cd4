"""The command: what it prints, what it refuses, what its document holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import merge_bench
from merge_bench.errors import UsageError
from merge_bench.forecast.model import GPUS, find_gpu_by_driver_name
from tests.forecast.made_up import Cluster, Setup, write, write_probe
from tests.helpers.command_line import exit_status

EXACT = Cluster()


def ended(*words: str | Path) -> int:
    """The exit status of the command."""
    return exit_status("predict", *words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("results"), EXACT, Setup((1, 1)))


def keys(value: Any, name: str = "") -> set[str]:
    """Every key of a document with those above it; list members share one name."""
    if isinstance(value, dict):
        return set().union(*({f"{name}{key}"} | keys(each, f"{name}{key}.") for key, each in value.items()))
    if isinstance(value, list):
        return set().union(*(keys(each, name) for each in value)) if value else set()
    return set()


ROW = {
    "workers",
    "hosts",
    "workers_per_host",
    "wall_seconds",
    "throughput_bytes_per_second",
    "bandwidth_bytes_per_second",
    "data_bytes",
    "crossing_bytes",
    "between_hosts_bytes",
    "message_bytes",
    "phases_seconds",
    "parts_seconds",
    "limit",
    "measured_wall_seconds",
    "unknown",
}


def test_the_document_keeps_its_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(folder, "--workers", "4", "--hosts", "4", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert set(document) == {
        "document_version",
        "schema",
        "results",
        "engine",
        "config",
        "rows_per_chunk",
        "row_bytes",
        "what_if",
        "forecast",
        "scaling",
        "parameters",
        "checked",
        "launch_spread",
        "notes",
        "error",
    }
    assert set(document["forecast"]) == ROW
    assert all(set(row) == ROW for row in document["scaling"])
    assert keys(document["forecast"]["wall_seconds"]) == {"value", "interval"}
    assert keys(document["forecast"]["phases_seconds"]) == {"partition", "exchange", "join", "hidden"}
    assert keys(document["parameters"]) == {"name", "what", "unit", "value", "interval", "source", "origin"}
    assert keys(document["checked"]) == {
        "result",
        "workers",
        "hosts",
        "rows_per_chunk",
        "measured_wall_seconds",
        "model_wall_seconds",
        "error",
        "measured_bandwidth_bytes_per_second",
        "model_bandwidth_bytes_per_second",
    }
    assert document["error"] is None


def test_people_see_the_forecast_the_scaling_the_parameters_and_what_is_not_known(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(folder, "--workers", "64", "--hosts", "64", "--what-if", "nic=2x") == 0
    printed = capsys.readouterr().out
    assert "64 workers on 64 hosts" in printed
    assert "× 2 (--what-if)" in printed
    assert "64 workers are 32 times the largest measured number (2)" in printed
    assert "The latency between hosts is unknown" in printed
    assert "Limited by" in printed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--workers", "4", "--hosts", "2"], "--link local="),
        (["--workers", "2", "--hosts", "3"], "--hosts must be from 1 to 2 (the number of workers), not 3"),
        (["--workers", "2000", "--hosts", "3"], "--workers must be from 1 to 1024, not 2000"),
        (["--workers", "4", "--hosts", "4", "--what-if", "nic=fast"], "'fast' is not a factor above 0"),
        (["--workers", "4", "--hosts", "4", "--what-if", "nic=0x"], "not a factor above 0"),
        (["--workers", "4", "--hosts", "4", "--what-if", "disk=2x"], "overlap=0.9 or gpu=h200"),
        (["--workers", "4", "--hosts", "4", "--what-if", "nic=2x,nic=3x"], "sets nic twice"),
        (["--workers", "4", "--hosts", "4", "--what-if", "overlap=2"], "not a number from 0 to 1"),
        (["--workers", "4", "--hosts", "4", "--what-if", "cores=0"], "not a number of cores above 0"),
        (["--workers", "4", "--hosts", "4", "--what-if", "gpu=gtx"], "unknown GPU"),
        (["--workers", "4", "--hosts", "4", "--what-if", "gpu=h200"], "measured on h200"),
        (["--workers", "4", "--hosts", "4", "--link", "nic=fast"], "'fast' is not a rate"),
        (["--workers", "4", "--hosts", "4", "--link", "nic=12.5gb/s"], "'12.5gb/s' is not a rate; write it like"),
        (["--workers", "4", "--hosts", "4", "--link", "nic=0B/s"], "'0B/s' is not a rate above 0"),
        (["--workers", "4", "--hosts", "4", "--link", "nic=1GB/s,2"], "'2' is not a latency with its unit"),
        (["--workers", "4", "--hosts", "4", "--link", "nic=1GB/s,soon"], "'soon' is not a latency"),
        (["--workers", "4", "--hosts", "4", "--link", "bus=1GB/s"], "such as nic=12.5GB/s,2us"),
        (["--workers", "4", "--hosts", "4", "--config", "other"], "only for tuned"),
        (["--workers", "4", "--hosts", "4", "--chunk", "many"], "--chunk"),
        (["--workers", "4", "--hosts", "4", "--chunk", "0"], "at least 1"),
        (["--workers", "4", "--hosts", "4", "--plot", "scaling.doc"], ".png, .svg or .html"),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert ended(folder, *words) == 2
    message = capsys.readouterr().err
    assert says in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("setups", "says"),
    [
        ([Setup((1, 1)), Setup((1, 1), config="other")], "choose one with --config: tuned, other"),
        ([Setup((1, 1)), Setup((1, 1), engine="pandas")], "differ in engine"),
        ([Setup((1, 1), plan=(("exchange", "dask"),))], "measured with --exchange dask"),
        ([Setup((1, 1), plan=(("runtime_filter", True),))], "measured with --runtime-filter on"),
        ([Setup((1, 1), plan=(("distribution", "broadcast"),))], "measured with a broadcast"),
        ([Setup((1, 1), plan=(("workload", {"name": "synthetic", "zipf": 1.2}),))], "skewed keys (zipf:1.2)"),
        ([Setup((1, 1), gpu="Tesla V100"), Setup((1, 1), gpu="NVIDIA H200")], "--what-if gpu=NAME"),
        ([Setup((1, 1), rows=0)], "merged no rows"),
        ([Setup((1,))], "probe p2p --placement two-hosts"),
    ],
)
def test_results_that_tell_too_little_or_disagree_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setups: list[Setup], says: str
) -> None:
    assert ended(write(tmp_path, EXACT, *setups), "--workers", "4", "--hosts", "4") == 2
    assert says in capsys.readouterr().err


def test_uneven_keys_of_real_tables_are_told(tmp_path: Path) -> None:
    notes = merge_bench.predict(write(tmp_path, EXACT, Setup((1, 1), uneven=3.0)), workers=4, hosts=4)["notes"]
    assert any("one worker received 1.3 times the mean number of rows" in note for note in notes)


def test_a_network_measurement_alone_and_an_imported_result_are_refused(tmp_path: Path) -> None:
    probe = write_probe(tmp_path, [("tag_bw", "two-hosts", 1 << 22, 1e9)])
    with pytest.raises(UsageError, match="only network measurements"):
        merge_bench.predict(probe, workers=2, hosts=2)
    imported = Path(__file__).parents[2] / "results" / "published" / "gadi-v100-optimized-small"
    with pytest.raises(UsageError, match="imported results have no phase times"):
        merge_bench.predict(imported, workers=2, hosts=2)


def test_a_row_that_is_not_known_has_no_numbers_and_says_why(folder: Path, tmp_path: Path) -> None:
    document = merge_bench.predict(folder, workers=4, hosts=2, link="local=8GB/s")
    assert document["forecast"]["unknown"] is None
    within = write(tmp_path, EXACT, Setup((2,)))
    document = merge_bench.predict(within, workers=8, hosts=4, link="nic=1GB/s,1us")
    assert [row["unknown"] for row in document["scaling"]] == [None] * 4


def test_given_links_take_the_place_of_measured_ones(folder: Path) -> None:
    document = merge_bench.predict(folder, workers=4, hosts=4, link="nic=2GB/s,5us")
    found = {each["name"]: each for each in document["parameters"]}
    assert found["nic_rate"]["value"] == 2e9
    assert found["nic_latency"]["value"] == pytest.approx(5e-6)
    assert found["nic_rate"]["source"] == "given"


@pytest.mark.parametrize("gpu", ["NVIDIA H200", None])
def test_another_gpu_is_scaled_by_memory_bandwidth_unless_it_was_measured(tmp_path: Path, gpu: str | None) -> None:
    v100 = write(tmp_path, EXACT, Setup((1, 1), gpu="Tesla V100-SXM2-32GB"))
    if gpu is None:
        document = merge_bench.predict(v100, workers=4, hosts=4, what_if="gpu=h200")
        expected, source = 20e6 * 4800 / 900, "assumed"
        assert any("This is not measured" in note for note in document["notes"])
    else:
        h200 = write(tmp_path, replace(EXACT, join_rate=300e6), Setup((1, 1), gpu=gpu))
        document = merge_bench.predict(v100, h200, workers=4, hosts=4, what_if="gpu=h200")
        expected, source = 300e6, "measured"
    (found,) = [each for each in document["parameters"] if each["name"] == "join_rate"]
    assert found["value"] == pytest.approx(expected, rel=1e-3)
    assert found["source"] == source


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla V100S-PCIE-32GB", None),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", None),
    ],
)
def test_gpus_are_recognised_by_their_drivers_names(driver: str, name: str | None) -> None:
    assert find_gpu_by_driver_name(driver) == (GPUS[name] if name else None)


def test_the_page_lists_the_memory_bandwidths_that_are_used() -> None:
    page = (Path(__file__).parents[2] / "docs" / "predict.md").read_text(encoding="utf-8")
    for name, gpu in GPUS.items():
        assert f"| `{name}` | {gpu.bandwidth / 1e9:,.0f} | {gpu.source} |" in page


@pytest.mark.slow
def test_the_scaling_is_drawn(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"scaling.{form}" for form in ("png", "svg", "html")]
    plots = [word for file in files for word in ("--plot", file)]
    assert ended(folder, "--workers", "16", "--hosts", "16", *plots) == 0
    printed = capsys.readouterr().err
    for file in files:
        drawn = file.read_bytes()
        assert len(drawn) > 10_000
        if file.suffix != ".png":
            for word in (b"forecast", b"measured", b"Workers"):
                assert word in drawn
        assert f"wrote {file}" in printed


def test_the_forecast_is_the_same_every_time(folder: Path) -> None:
    once, again = (merge_bench.predict(folder, workers=16, hosts=16) for _ in range(2))
    assert once == again


def test_a_forecast_from_a_busy_host_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path, EXACT, Setup((1, 1)))
    line = {"kind": "warning", "time": 0.0, "code": "busy-host", "message": "other processes keep 1.9 of 2 cores busy"}
    with (folder / "records.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    found = merge_bench.predict(folder, workers=4, hosts=4)
    assert any("busy host: other processes keep 1.9 of 2 cores busy." in note for note in found["notes"])


def test_the_workers_of_a_forecast_are_spread_over_as_many_hosts_as_those_of_the_result(tmp_path: Path) -> None:
    folder = write(tmp_path, EXACT, Setup((2, 2)))
    found = merge_bench.predict(folder, workers=8)
    assert (found["forecast"]["workers"], found["forecast"]["hosts"]) == (8, 2)
    assert merge_bench.predict(folder, workers=1)["forecast"]["hosts"] == 1
