"""Presets on what the programs really printed; `tests/data/README.md` says where the texts are from."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.command.metrics import CommandOutput, MetricOptions, find_metric_value, make_metrics
from merge_bench.command.options import ExecOptions
from merge_bench.command.presets import PRESETS, preset_names

TEXTS = Path(__file__).parents[1] / "data" / "commands"
PRINTED = [
    ("osu", "mpirun -n 2 osu_bw", "osu_bw.txt", {"bandwidth": 1785.15}),
    ("osu", "srun --label osu_latency_mt", "osu_latency_tagged.txt", {"latency": 1.25}),
    ("osu", "mpirun osu_latency -m 8", "osu_latency_7.txt", {"latency": 0.93}),
    ("nccl-tests", "all_reduce_perf -g 8", "nccl_tests.txt", {"busbw": 84.8558}),
    ("nccl-tests", "mpirun all_reduce_perf", "nccl_tests_tagged.txt", {"busbw": 92.3405}),
    (
        "ucx_perftest",
        "ucx_perftest daisy03 -t tag_bw -m cuda",
        "ucx_perftest_cuda.txt",
        {"bandwidth": 15779.29, "latency": 253.497, "messages": 3945.0},
    ),
    (
        "ucx_perftest",
        "ucx_perftest localhost -t tag_bw",
        "ucx_perftest_bw.txt",
        {"bandwidth": 333.20, "latency": 187.573, "messages": 5331.0},
    ),
    (
        "ucx_perftest",
        "ucx_perftest localhost -t tag_lat",
        "ucx_perftest_lat.txt",
        {"latency": 269.448, "messages": 3711.0},
    ),
    ("mpi4py.bench", "mpirun python -m mpi4py.bench pingpong", "mpi4py_pingpong.txt", {"bandwidth": 8128.29}),
    ("mpi4py.bench", "python -m mpi4py.bench ringtest", "mpi4py_ringtest.txt", {"time": 0.000172166}),
    ("ib_write_bw", "ib_write_bw -d mlx5_1 10.0.0.1", "ib_write_bw.txt", {"bandwidth": 44276.64}),
    ("ib_write_bw", "ib_write_bw --report_gbits", "ib_write_bw_gbits.txt", {"bandwidth": 0.48}),
    ("ib_write_bw", "ib_send_lat 10.0.0.1", "ib_send_lat.txt", {"latency": 5.84}),
    (
        "cudf_merge",
        "python -m ucxx.benchmarks.cudf_merge",
        "cudf_merge.txt",
        {"throughput": 19.16, "bandwidth": 19.62, "merge_time": 3.11},
    ),
    (
        "cudf_merge",
        "python cudf-merge.py",
        "cudf_merge_2022.txt",
        {"throughput": 8.56, "bandwidth": 4.88, "merge_time": 0.69612},
    ),
    ("bench_shuffle", "mpirun bench_shuffle", "bench_shuffle.txt", {"throughput": 38.62, "shuffle_time": 3.09}),
]


@pytest.mark.parametrize(("preset", "command", "file", "expected"), PRINTED, ids=[each[2] for each in PRINTED])
def test_numbers_of_real_output(preset: str, command: str, file: str, expected: dict[str, float]) -> None:
    output = CommandOutput((TEXTS / file).read_text(encoding="utf-8"))
    metrics = make_metrics(MetricOptions(preset=preset), command)[:-1]
    assert {each.name: find_metric_value(each, output) for each in metrics} == pytest.approx(expected)


def test_every_preset_has_real_output() -> None:
    assert {preset for preset, *_ in PRINTED} == set(preset_names())
    assert {file.name for file in TEXTS.iterdir()} == {file for _, _, file, _ in PRINTED}


def test_latency_is_the_main_metric_of_a_latency_test() -> None:
    assert make_metrics(MetricOptions(preset="ucx_perftest"), "ucx_perftest -t tag_lat")[0].name == "latency"
    assert make_metrics(MetricOptions(preset="osu"), "mpirun osu_mbw_mr")[0].name == "bandwidth"


def test_the_help_names_every_preset() -> None:
    option = next(each for each in ExecOptions.declared_options() if each.key == "preset")
    assert all(preset.name in option.help for preset in PRESETS)
