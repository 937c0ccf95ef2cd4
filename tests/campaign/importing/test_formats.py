"""What each importer reads of recorded output, as the records have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merge_bench.analysis.aggregate import VerificationState, verification_state
from merge_bench.campaign.importers import importers, load_format_reader
from merge_bench.campaign.importing import import_file, recognise_format
from merge_bench.campaign.printed_text import PrintedText
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import IterationLine, ProbeLine
from tests.campaign.importing import samples
from tests.campaign.importing.texts import text as cudf_merge_text
from tests.helpers.strict_records import validate

PRINTED = Path(__file__).parents[2] / "data" / "printed"
GIB = 2**30


def imported(folder: Path, content: str | bytes, name: str = "printed.out") -> Campaign:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    campaign = read_campaign(import_file(folder / name, folder / "results"))
    for line in campaign.records.read_bytes().splitlines():
        validate(line)
    return campaign


def rows_of(campaign: Campaign) -> list[ProbeLine]:
    (launch,) = campaign.launches
    assert launch.complete
    return list(launch.probes)


def iterations_of(campaign: Campaign) -> list[IterationLine]:
    (launch,) = campaign.launches
    assert launch.complete
    return list(launch.iterations)


def warnings_of(campaign: Campaign) -> dict[str, str]:
    return {warning.code: warning.message for warning in campaign.warnings}


def figures(row: ProbeLine) -> dict[str, Any]:
    names = ("test", "size", "seconds", "bandwidth_bytes_per_second", "iterations", "memory")
    return {name: getattr(row, name) for name in names if getattr(row, name) is not None}


RECOGNISED = {
    "cudf-merge": [cudf_merge_text()],
    "nccl-tests": [
        samples.NCCL_ALL_REDUCE,
        samples.NCCL_ALLTOALL,
        samples.NCCL_RING,
        samples.NCCL_WRONG,
        *(file.read_text() for file in sorted(PRINTED.glob("nccl-tests-*"))),
    ],
    "osu": [samples.OSU_BW, samples.OSU_BIBW, samples.OSU_LATENCY_MT, samples.OSU_ALLTOALLV, samples.OSU_ALLREDUCE],
    "cudf-polars": [samples.PDSDS, samples.PDSH_SUMMARY, samples.PDSDS + samples.RAPIDSMPF_STATISTICS],
    "rapidsmpf": [
        samples.RAPIDSMPF_MEANS,
        samples.RAPIDSMPF_OLD_STATISTICS,
        samples.RAPIDSMPF_STATISTICS,
        samples.RAPIDSMPF_JSON,
    ],
    "ucx_perftest": [
        samples.UCX_PERFTEST_TITLED,
        *(file.read_text() for file in sorted(PRINTED.glob("ucx_perftest-*"))),
    ],
}


def test_each_format_has_a_file_a_sample_and_a_reader() -> None:
    assert list(importers()) == list(RECOGNISED)
    for name in importers():
        assert callable(load_format_reader(name).read)


@pytest.mark.parametrize(("name", "content"), [(name, each) for name, texts in RECOGNISED.items() for each in texts])
def test_a_format_is_recognised_by_its_lines(name: str, content: str) -> None:
    text = PrintedText.decode(Path("a.out"), content.encode(), "any")
    assert recognise_format(text) == name
    line = load_format_reader(name).find_identifying_line(text)
    assert 1 <= line <= len(text.lines)


def test_osu_rows_have_the_names_sizes_and_units_of_the_records(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.OSU_BW)
    assert campaign.probe == "osu"
    rows = rows_of(campaign)
    assert [row.size for row in rows] == [1 << power for power in range(23)]
    assert figures(rows[-1]) == {
        "test": "osu_bw",
        "size": 4_194_304,
        "bandwidth_bytes_per_second": 1785.15e6,
        "memory": "host",
    }
    assert (rows[0].ranks, rows[0].method, rows[0].placement) == ([0, 1], "OSU micro-benchmarks 5.6.2", "")
    assert warnings_of(campaign) == {}


def test_osu_latencies_are_seconds_with_their_extremes_and_counts(tmp_path: Path) -> None:
    (first, *_) = rows_of(imported(tmp_path, samples.OSU_LATENCY))
    assert figures(first) == {"test": "osu_latency", "size": 1, "seconds": pytest.approx(0.94e-6), "memory": "host"}
    (row,) = rows_of(imported(tmp_path, samples.OSU_ALLTOALLV))
    assert (row.test, row.size, row.iterations) == ("osu_alltoallv", 4096, 1000)
    assert (row.seconds, row.seconds_min, row.seconds_max) == (467.38e-6, 460.43e-6, 474.05e-6)
    campaign = imported(tmp_path, samples.OSU_ALLTOALL)
    assert [(row.test, row.size) for row in rows_of(campaign)] == [
        ("osu_alltoall", 1 << power) for power in range(1, 5)
    ]
    assert warnings_of(campaign)["imported-lines"].startswith("2 lines")


def test_osu_names_memory_ranks_settings_and_the_command(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.OSU_BIBW)
    assert {row.memory for row in rows_of(campaign)} == {"cuda to host"}
    assert {row.test for row in rows_of(campaign)} == {"osu_bibw"}
    assert campaign.head.configs[0].variables == {"UCX_RNDV_THRESH": "1024"}
    assert campaign.head.imported_from is not None
    assert str(campaign.head.imported_from.command).startswith("mpirun -x UCX_RNDV_THRESH=1024 -np 2 ")
    (first, *_) = rows_of(imported(tmp_path, samples.OSU_ALLREDUCE))
    assert (len(first.ranks), first.memory, first.test) == (96, "cuda", "osu_allreduce")


def test_osu_lines_of_several_ranks_have_time_stamps(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.OSU_LATENCY_MT)
    rows = rows_of(campaign)
    assert [(row.size, row.seconds) for row in rows] == [
        (0, pytest.approx(2.35e-6)),
        (1, pytest.approx(1.9e-6)),
        (2, pytest.approx(1.9e-6)),
        (4, pytest.approx(2113.56e-6)),
        (8, pytest.approx(1.25e-6)),
    ]
    assert {row.test for row in rows} == {"osu_latency_mt"}


def test_several_tests_of_one_file_are_all_imported(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.OSU_LATENCY + samples.OSU_BW + samples.OSU_BIBW)
    assert campaign.head.plans[0]["tests"] == ["osu_latency", "osu_bw", "osu_bibw"]
    assert len(rows_of(campaign)) == 4 + 23 + 4


def test_the_log_of_ucx_gives_version_lanes_and_settings(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.UCX_LOG + samples.OSU_LATENCY)
    (first, *_) = rows_of(campaign)
    assert first.method == "OSU micro-benchmarks 7.5, UCX 1.15.0"
    assert first.selected == ["rc_mlx5/mlx5_1:1"]
    assert first.requested == {"UCX_NET_DEVICES": "mlx5_1:1"}
    assert campaign.head.configs[0].variables == {"UCX_LOG_LEVEL": "info", "UCX_NET_DEVICES": "mlx5_1:1"}


def test_nccl_tests_rows_are_those_of_both_places(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.NCCL_HEAD + samples.NCCL_RING, "all_reduce.out")
    rows = rows_of(campaign)
    assert len(rows) == 10
    assert figures(rows[0]) == {
        "test": "all_reduce_perf out-of-place",
        "size": 536_870_912,
        "seconds": 0.010052,
        "bandwidth_bytes_per_second": 93.46e9,
        "iterations": 20,
        "memory": "cuda",
    }
    assert (rows[1].test, rows[1].seconds, rows[1].wrong) == ("all_reduce_perf in-place", 9676.9 / 1e6, 0)
    assert rows[1].bus_bandwidth_bytes_per_second == rows[1].bandwidth_bytes_per_second == 97.09e9
    assert (rows[0].count, rows[0].placement, rows[0].hosts) == (134_217_728, "two-hosts", ["gpu23", "gpu24"])


@pytest.mark.parametrize(
    ("before", "name", "test"),
    [
        ("", "alltoall-8-hosts.txt", "alltoall_perf"),
        ("", "x.txt", "collective"),
        ("$ mpirun -x NCCL_ALGO=Ring ./build/alltoall_perf -b 256M -e 512M\n", "x.txt", "alltoall_perf"),
        ("# Collective test starting: alltoall_perf\n", "all_reduce.txt", "alltoall_perf"),
        ("Running /nix/store/nccl-tests/bin/alltoall_perf\n", "x.txt", "alltoall_perf"),
    ],
)
def test_the_collective_is_named_by_the_text_or_the_file(tmp_path: Path, before: str, name: str, test: str) -> None:
    campaign = imported(tmp_path, before + samples.NCCL_ALLTOALL, name)
    assert {row.test for row in rows_of(campaign)} == {f"{test} out-of-place", f"{test} in-place"}
    assert {row.wrong for row in rows_of(campaign)} == {None}  # `error` is a deviation, no count
    settings = {"NCCL_ALGO": "Ring"} if "NCCL_ALGO" in before else {}
    assert campaign.head.configs[0].variables == settings


def test_two_collectives_in_one_file_are_both_imported(tmp_path: Path) -> None:
    first, second = "# Collective test starting: all_reduce_perf\n", "# Collective test starting: alltoall_perf\n"
    campaign = imported(tmp_path, first + samples.NCCL_ALL_REDUCE + second + samples.NCCL_ALLTOALL)
    assert campaign.head.plans[0]["tests"] == ["all_reduce_perf", "alltoall_perf"]
    assert len(rows_of(campaign)) == 8


def nccl_document(**changes: Any) -> str:
    """A file of ``-J``, with changes."""
    return json.dumps(json.loads((PRINTED / "nccl-tests-2.19.6.json").read_text()) | changes)


def test_a_file_of_nccl_tests_option_j_has_the_rows_of_its_table(tmp_path: Path) -> None:
    campaign = imported(tmp_path, (PRINTED / "nccl-tests-2.19.6.json").read_bytes())
    rows = rows_of(campaign)
    assert len(rows) == 10
    assert [(row.test, row.seconds, row.bandwidth_bytes_per_second, row.wrong) for row in rows[:2]] == [
        ("all_reduce_perf out-of-place", 0.010052, 93.46e9, 0),
        ("all_reduce_perf in-place", 9676.9 / 1e6, 97.09e9, None),
    ]
    assert (rows[0].method, rows[0].placement, rows[0].ranks) == ("nccl-tests, NCCL 2.27.3", "one-host", [0, 1])
    assert campaign.head.configs[0].variables == {"NCCL_ALGO": "RING", "UCX_TLS": "rc,cuda_copy"}
    for form in ("", "-iterations"):
        table = rows_of(imported(tmp_path, (PRINTED / f"nccl-tests-2.19.6{form}.txt").read_bytes()))
        assert [figures(row) for row in table] == [figures(row) for row in rows]
        assert (table[0].method, table[0].hosts) == ("nccl-tests 2.19.6, NCCL 2.27.3", ["gpu23", "gpu23"])


@pytest.mark.parametrize("name", ["4.1.4", "4.1.4-timestamps", "5.0.11"])
def test_ucx_perftest_of_both_sides_names_its_test_and_size(tmp_path: Path, name: str) -> None:
    content = (PRINTED / f"ucx_perftest-1.13.1-both-sides-mpirun-{name}.txt").read_bytes()
    (row,) = rows_of(imported(tmp_path, content))
    assert (row.test, row.size, row.iterations, row.memory) == ("tag_lat", 64, 5000, "host")
    assert row.seconds == pytest.approx({"4.1.4": 2.974e-6, "5.0.11": 16.007e-6}.get(name, 4.873e-6), rel=1e-3)
    assert row.bandwidth_bytes_per_second == pytest.approx(64 / (row.seconds or 0))


@pytest.mark.parametrize("form", ["", "-final", "-csv"])
def test_ucx_perftest_names_the_tests_of_a_batch(tmp_path: Path, form: str) -> None:
    rows = rows_of(imported(tmp_path, (PRINTED / f"ucx_perftest-1.21.0-batch{form}.txt").read_bytes()))
    assert [(row.test, row.size, row.iterations) for row in rows] == [
        ("tag_lat", 8, 5000),
        ("tag_lat", 4096, 2000),
        ("tag_bw", 8, 5000),
        ("tag_bw", 4096, 2000),
    ]


def test_a_size_that_the_client_does_not_print_follows_with_a_warning(tmp_path: Path) -> None:
    content = (PRINTED / "ucx_perftest-1.21.0-tag_bw-64K.txt").read_text()
    campaign = imported(tmp_path, content)
    (row,) = rows_of(campaign)
    assert (row.test, row.size) == ("unnamed_bw", 65536)
    assert (row.method, row.selected) == ("ucx_perftest of UCX 1.21.0", ["sysv/memory", "tcp/lo", "tcp/eth0"])
    assert row.protocol == "multi-frag eager copy-in copy-out [sysv/memory]"
    assert row.requested == {"UCX_TLS": "tcp,self,sysv"}
    assert "65,536 bytes" in warnings_of(campaign)["imported-size"]
    campaign = imported(tmp_path, f"$ ucx_perftest node1 -t tag_bw -s 64k -n 4000\n{content}")
    (row,) = rows_of(campaign)
    assert (row.test, row.size) == ("tag_bw", 65536)
    assert "imported-size" not in warnings_of(campaign)
    command = "$ ucx_perftest node1 -t tag_bw -s 81920000 -m cuda\n"
    (row,) = rows_of(imported(tmp_path, command + samples.UCX_PERFTEST_TITLED))
    assert (row.test, row.size, row.memory, row.iterations) == ("tag_bw", 81_920_000, "cuda", 1000)


def test_rapidsmpf_means_are_one_iteration_of_a_command(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.RAPIDSMPF_MEANS)
    assert campaign.command is not None
    assert (campaign.probe, campaign.command.main_metric.name) == (None, "wall")
    units = {metric.name: (metric.unit, metric.better) for metric in campaign.command.metrics}
    assert units["global-throughput"] == ("B/s", "more")
    assert units["spill-time-host-to-device"] == ("s", "less")
    (iteration,) = iterations_of(campaign)
    assert iteration.wall_seconds == 3.09
    assert iteration.values.keys() == units.keys() - {"wall"}
    assert iteration.values["global-throughput"] == pytest.approx(38.62 * GIB)
    assert iteration.values["spill-bytes-host-to-device"] == pytest.approx(3.73 * GIB)
    assert "imported-means" in warnings_of(campaign)
    (run,) = campaign.runs
    assert verification_state(run, run.launches) is VerificationState.IMPORTED


def shuffles(ranks: int, runs: int, warmups: int) -> list[str]:
    """Lines of ``bench_shuffle`` as cpp/benchmarks/bench_shuffle.cpp of rapidsmpf 26.02 prints them."""
    lines = ["[PRINT:0:0] Arguments:", f"  -r {runs} (number of runs)", f"  -w {warmups} (number of warmup runs)"]
    for run in range(warmups + runs):
        warm = " (warmup run)" if run < warmups else ""
        lines += [
            f"[PRINT:{rank}:0] elapsed: {3 + run + rank / 4:.2f} sec | local throughput: {8 / (3 + run + rank / 4):.2f}"
            f" GiB/s | global throughput: {16 / (3 + run + rank / 4):.2f} GiB/s{warm}"
            for rank in range(ranks)
        ]
    return lines


def test_rapidsmpf_runs_take_as_long_as_their_slowest_rank(tmp_path: Path) -> None:
    lines = shuffles(ranks=2, runs=2, warmups=1)
    statistics = samples.RAPIDSMPF_OLD_STATISTICS.splitlines()
    campaign = imported(
        tmp_path, "\n".join([*lines, *statistics, *(line.replace("0:0", "1:0") for line in statistics)])
    )
    iterations = iterations_of(campaign)
    assert [(each.warmup, each.wall_seconds) for each in iterations] == [(True, 3.25), (False, 4.25), (False, 5.25)]
    assert iterations[1].values == {
        "local-throughput": pytest.approx(1.88 * GIB),
        "global-throughput": pytest.approx(3.76 * GIB),
    }
    assert iterations[2].values["event-loop-total"] == pytest.approx(2 * 0.61685)  # of both ranks
    assert "imported-ranks" in warnings_of(campaign)


def test_rapidsmpf_statistics_have_the_names_of_their_json(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.RAPIDSMPF_STATISTICS)
    (iteration,) = iterations_of(campaign)
    assert iteration.values == {
        "alloc-device-bytes": pytest.approx(102.3 * GIB),
        "alloc-device-time": 45.41,
        "copy-device-to-host-bytes": pytest.approx(29.06 * GIB),
        "copy-device-to-host-time": 14.71,
        "event-loop-process-communication": pytest.approx(113.4),
        "event-loop-total": pytest.approx(234.0),
    }
    assert iteration.wall_seconds == pytest.approx(234.0)
    assert "imported-wall" in warnings_of(campaign)
    campaign = imported(tmp_path, samples.RAPIDSMPF_JSON)
    (iteration,) = iterations_of(campaign)
    assert iteration.values["alloc-device-bytes"] == 2.9957e9
    assert campaign.command is not None
    assert {metric.name: metric.unit for metric in campaign.command.metrics}["alloc-device-bytes"] == "B"


def test_cudf_polars_queries_are_metrics_and_their_sum_the_wall_clock(tmp_path: Path) -> None:
    campaign = imported(tmp_path, samples.PDSDS)
    (iteration,) = iterations_of(campaign)
    assert iteration.values == {
        "q17": 1.3267,
        "q18": 0.688,
        "q19": 0.2061,
        "q20": 0.2122,
        "q21": 0.1892,
        "q22": 0.2957,
        "q23": 0.4179,
    }
    assert iteration.wall_seconds == pytest.approx(3.3358)
    assert campaign.command is not None
    assert [metric.name for metric in campaign.command.metrics] == ["wall", *iteration.values]
    assert warnings_of(campaign) == {}


def test_cudf_polars_iterations_are_those_of_every_query(tmp_path: Path) -> None:
    second = samples.PDSDS.replace("Iteration 0 finished in 1.", "Iteration 1 finished in 2.")
    second = second.replace("Iteration 0", "Iteration 1")
    iterations = iterations_of(imported(tmp_path, samples.PDSDS + second.partition("\n")[2]))
    assert [iteration.values["q17"] for iteration in iterations] == [1.3267, 2.3267]
    (iteration,) = iterations_of(imported(tmp_path, samples.PDSH_SUMMARY))
    assert iteration.values == {"q1": 2.3091, "q2": 0.3807}
