"""The fit on simulated campaigns: it finds the truth, its intervals hold it, and its forecasts come true."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from merge_bench.analysis.statistics import median
from merge_bench.errors import UsageError
from merge_bench.forecast.document import predict
from merge_bench.forecast.fit import (
    HOST_ERROR,
    LAUNCH_SPREAD,
    LINK_ERROR,
    SHARED_CORES_ERROR,
    CostEquation,
    fit_fixed_and_size_costs,
    fit_model_parameters,
    fit_resampled_parameters,
    model_error,
    resampled_interval,
    spread_between_launches,
)
from merge_bench.forecast.gather import (
    IterationSample,
    MeasuredRun,
    MergeShape,
    cores_of_fullest_host,
    gather_measurements,
)
from merge_bench.forecast.model import CORES, JOIN, NIC, PARTITION
from merge_bench.host.description import Hardware
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import Worker
from merge_bench.units import format_rate
from tests.forecast.made_up import Cluster, Setup, simulate, write, write_probe
from tests.helpers.documents import plain

EXACT = Cluster()
REAL = Cluster(spread=0.08, noise=0.03)
RECORDED = Path(__file__).parents[1] / "data" / "forecast"


def forecast(*folders: Path, **asked: Any) -> dict[str, Any]:
    return plain(predict([read_campaign(folder) for folder in folders], **asked))


def parameters(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in document["parameters"]}


def truth(cluster: Cluster, setup: Setup) -> float:
    """The median wall of many simulated iterations."""
    chance = random.Random(99)
    return median([simulate(cluster, setup, chance)[1] for _ in range(400)])


def test_every_parameter_of_an_exact_cluster_is_found(tmp_path: Path) -> None:
    found = parameters(forecast(write(tmp_path, EXACT, Setup((2, 2))), workers=4, hosts=2))
    for name in ("partition_rate", "join_rate", "local_rate", "nic_rate", "meeting"):
        assert found[name]["value"] == pytest.approx(getattr(EXACT, name), rel=1e-4), name
        assert found[name]["source"] == "measured"
    assert found["partition_spread"]["value"] == pytest.approx(0, abs=1e-9)
    assert found["overlap"]["value"] == pytest.approx(0, abs=1e-9)


def test_fixed_costs_and_overheads_are_told_from_rates_where_sizes_differ(tmp_path: Path) -> None:
    cluster = replace(EXACT, fixed=5e-3, overhead=2e-4, meeting=0.01)
    setups = [Setup((1, 1, 1), rows) for rows in (500_000, 4_000_000)]
    found = parameters(forecast(write(tmp_path, cluster, *setups), workers=3, hosts=3))
    assert found["partition_fixed"]["value"] == pytest.approx(5e-3, rel=0.01)
    assert found["partition_rate"]["value"] == pytest.approx(40e6, rel=0.01)
    assert found["nic_overhead"]["value"] == pytest.approx(2e-4, rel=0.01)
    assert found["nic_rate"]["value"] == pytest.approx(1e9, rel=0.01)


def test_one_size_tells_no_fixed_cost_and_the_forecast_says_so(tmp_path: Path) -> None:
    document = forecast(write(tmp_path, replace(EXACT, fixed=5e-3), Setup()), workers=4, hosts=4)
    assert parameters(document)["partition_fixed"]["source"] == "assumed"
    assert any("Only one chunk size was measured" in note for note in document["notes"])


@pytest.mark.parametrize(
    ("per_host", "link", "limit"),
    [((1, 1), "nic", 0.8e9), ((2, 2), "nic", 0.6e9), ((2,), "local", 6e9)],  # of a worker; the rates are 1e9 and 8e9
)
def test_a_fitted_rate_above_the_link_limit_of_its_run_gives_a_warning(
    tmp_path: Path, per_host: tuple[int, ...], link: str, limit: float
) -> None:
    def warnings(cluster: Cluster, **asked: Any) -> list[str]:
        folder = write(tmp_path / str(cluster.link_limit), cluster, Setup(per_host))
        notes = forecast(folder, workers=sum(per_host), hosts=len(per_host), **asked)["notes"]
        return [note for note in notes if "link limit" in note]

    (warning,) = warnings(replace(EXACT, link_limit=limit))
    of_host = limit * (
        4 / 3 if per_host == (2, 2) else 1
    )  # two workers send two thirds of their bytes to the other host
    assert format_rate(of_host) in warning
    assert f"--link {link}=" in warning
    assert warnings(replace(EXACT, link_limit=limit), links=[f"{link}=1GB/s"]) == []
    assert warnings(replace(EXACT, link_limit=1.4 * limit)) == []


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say(tmp_path: Path) -> None:
    held = 0
    for seed in range(20):
        folder = write(tmp_path / str(seed), REAL, Setup((1, 1, 1), launches=6, iterations=8), seed=seed)
        runs = gather_measurements([read_campaign(folder)], None).runs
        low, high = resampled_interval([found["join_rate"] for found in fit_resampled_parameters(runs, (), runs)])
        held += low <= REAL.join_rate <= high
    assert held >= 16
    assert parameters(forecast(folder, workers=3, hosts=3))["join_rate"]["interval"] == [low, high]


@pytest.mark.parametrize(("per_host", "rows"), [((1,) * 8, 1_000_000), ((1,) * 4, 2_000_000), ((2,) * 4, 1_000_000)])
def test_clusters_that_were_not_measured_turn_out_as_forecast(
    tmp_path: Path, per_host: tuple[int, ...], rows: int
) -> None:
    target = Setup(per_host, rows)
    folder = write(tmp_path, REAL, Setup((1, 1)), Setup((1, 1), 4_000_000), Setup((2,)))
    found = forecast(folder, workers=len(target.hosts), hosts=len(per_host), chunk=rows)["forecast"]
    assert found["wall_seconds"]["value"] == pytest.approx(truth(REAL, target), rel=0.05)


def test_what_if_the_network_were_faster_is_what_a_faster_network_gives(tmp_path: Path) -> None:
    folder = write(tmp_path, REAL, Setup((1, 1)))
    document = forecast(folder, workers=8, hosts=8, what_if=["nic=4x"])
    assert any("full rate of the specified network link" in note for note in document["notes"])
    found = document["forecast"]
    wall = truth(replace(REAL, nic_rate=4e9), Setup((1,) * 8))
    assert found["wall_seconds"]["value"] == pytest.approx(wall, rel=0.05)


def test_skew_of_many_workers_is_forecast_from_that_of_few(tmp_path: Path) -> None:
    uneven = replace(EXACT, spread=0.3, nic_rate=1e12)
    folder = write(tmp_path, uneven, Setup((1,) * 4, launches=6, iterations=20))
    found = forecast(folder, workers=64, hosts=64)["forecast"]
    assert found["wall_seconds"]["value"] == pytest.approx(truth(uneven, Setup((1,) * 64)), rel=0.08)
    assert found["parts_seconds"]["waiting for the slowest worker"] > found["parts_seconds"]["partition"]


def test_an_iteration_that_was_disturbed_does_not_make_all_workers_look_uneven(tmp_path: Path) -> None:
    steady = replace(EXACT, spread=0.05)
    found = parameters(forecast(write(tmp_path, steady, Setup((1,) * 4, iterations=40)), workers=4, hosts=4))
    assert found["join_spread"]["value"] == pytest.approx(0.05, rel=0.15)
    quiet, disturbed = [IterationSample(1.0, 1.0, 1.0, 100, join_spread=variance) for variance in (0.0025, 4.0)]
    run = MeasuredRun(MergeShape("a", (1,) * 4, 50, 16), ((quiet,) * 9 + (disturbed,),))
    assert fit_model_parameters([run], {})["join_spread"] < 0.06


def test_network_measurements_tell_the_links_that_no_merge_crossed(tmp_path: Path) -> None:
    one_host = write(tmp_path, EXACT, Setup((2,)))
    rows = [("tag_lat", "two-hosts", 8, 3e-6), ("tag_bw", "two-hosts", 8, 8e6), ("tag_bw", "two-hosts", 1 << 22, 2.5e9)]
    document = forecast(one_host, write_probe(tmp_path, rows), workers=8, hosts=4)
    found = parameters(document)
    assert found["nic_rate"]["value"] == 2.5e9
    assert found["nic_latency"]["value"] == 3e-6
    assert found["nic_overhead"]["value"] == pytest.approx(1e-6)
    assert any("with one pair of processes" in note for note in document["notes"])


def test_a_network_that_was_measured_under_another_config_is_told(tmp_path: Path) -> None:
    merges = write(tmp_path, EXACT, Setup((1, 1), config="other"))
    probe = write_probe(tmp_path, [("tag_bw", "two-hosts", 1 << 22, 1e9)])
    notes = forecast(merges, probe, workers=2, hosts=2)["notes"]
    assert any("measured with tuned, but the merges with other" in note for note in notes)


def test_of_several_networks_that_of_the_merges_config_is_taken(tmp_path: Path) -> None:
    merges = write(tmp_path, EXACT, Setup((2,)))
    probes = [
        write_probe(tmp_path, [("tag_bw", "two-hosts", 1 << 22, rate)], config=config)
        for config, rate in (("other", 5e9), ("tuned", 2e9), ("third", 7e9))
    ]
    assert parameters(forecast(merges, *probes, workers=4, hosts=2))["nic_rate"]["value"] == 2e9
    with pytest.raises(UsageError, match="the merges use tuned, but the network was measured with other, third"):
        forecast(merges, probes[0], probes[2], workers=4, hosts=2)


def test_merges_tell_the_rate_and_network_measurements_the_latency_before_it(tmp_path: Path) -> None:
    merges = write(tmp_path, replace(EXACT, overhead=1e-3), Setup((1, 1)))
    rows = [
        ("tag_lat", "two-hosts", 8, 1e-4),
        ("tag_bw", "two-hosts", 8, 8 / 9e-4),
        ("tag_bw", "two-hosts", 1 << 22, 9e9),
    ]
    found = parameters(forecast(merges, write_probe(tmp_path, rows), workers=2, hosts=2))
    assert found["nic_rate"]["value"] == pytest.approx(1e9, rel=1e-3)


@pytest.mark.parametrize("per_host", [(1, 1, 1, 1), (2, 2)])
def test_a_pipelined_merge_is_forecast_from_its_overlap_and_the_link_measurement(
    tmp_path: Path, per_host: tuple[int, ...]
) -> None:
    cluster = replace(EXACT, overlap=0.8, meeting=0.0)
    document = forecast(
        write(tmp_path, cluster, Setup(per_host)), workers=16, hosts=16 // per_host[0], links=["local=8GB/s"]
    )
    found = parameters(document)
    assert found["overlap"]["value"] == pytest.approx(0.8, rel=1e-3)
    assert found["nic_rate"]["value"] == pytest.approx(1e9, rel=1e-3)
    wall = truth(cluster, Setup((per_host[0],) * (16 // per_host[0])))
    assert document["forecast"]["wall_seconds"]["value"] == pytest.approx(wall, rel=0.01)
    assert document["forecast"]["phases_seconds"]["hidden"] > 0


def test_pipelined_and_other_runs_are_not_mixed(tmp_path: Path) -> None:
    folders = [write(tmp_path, replace(EXACT, overlap=share), Setup((1, 1))) for share in (0.0, 0.8)]
    with pytest.raises(UsageError, match="differ in --pipeline"):
        forecast(*folders, workers=4, hosts=4)


def test_the_check_shows_how_the_model_describes_what_it_was_fitted_on(tmp_path: Path) -> None:
    checked = forecast(write(tmp_path, EXACT, Setup((1, 1)), Setup((2,))), workers=4, hosts=4)["checked"]
    assert [each["hosts"] for each in checked] == [2, 1]
    assert all(abs(each["error"]) < 0.01 for each in checked)


def test_partition_and_join_are_taken_from_hosts_that_are_shared_by_as_many(tmp_path: Path) -> None:
    alone = write(tmp_path, EXACT, Setup((1, 1)))
    shared = write(tmp_path, replace(EXACT, join_rate=10e6), Setup((2, 2)))
    for hosts, rate in ((8, 20e6), (4, 10e6), (2, 15e6)):
        found = parameters(forecast(alone, shared, workers=8, hosts=hosts))["join_rate"]
        assert found["value"] == pytest.approx(rate, rel=0.12)
    assert [abs(each["error"]) < 0.01 for each in forecast(alone, shared, workers=8, hosts=4)["checked"]] == [True] * 2


def test_measured_walls_stand_beside_the_forecasts_of_the_same_clusters(tmp_path: Path) -> None:
    scaling = forecast(write(tmp_path, EXACT, Setup((1, 1))), workers=8, hosts=8)["scaling"]
    assert [row["measured_wall_seconds"] is not None for row in scaling] == [False, True, False, False]
    assert scaling[1]["wall_seconds"]["value"] == pytest.approx(scaling[1]["measured_wall_seconds"], rel=1e-3)


def test_a_line_through_points_of_one_size_goes_through_zero() -> None:
    assert fit_fixed_and_size_costs([CostEquation(1, 10, 2.0), CostEquation(1, 11, 2.2)]) == (0.0, pytest.approx(0.2))


def test_a_cost_below_zero_is_taken_for_none() -> None:
    once, by_size = fit_fixed_and_size_costs([CostEquation(1, 10, 1.0), CostEquation(1, 100, 20.0)])
    assert once == 0
    assert by_size == pytest.approx(0.15)


CROWDED = replace(REAL, host_cores=2)


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_workers_that_share_the_cores_of_a_host_are_forecast_from_as_many_workers_as_cores(
    tmp_path: Path, workers: int
) -> None:
    folder = write(tmp_path, CROWDED, Setup((2,)), Setup((2,), 4_000_000))
    document = forecast(folder, workers=workers, chunk=1_000_000)
    assert document["forecast"]["wall_seconds"]["value"] == pytest.approx(truth(CROWDED, Setup((workers,))), rel=0.08)
    assert parameters(document)["host_cores"]["value"] == 2
    assert any("share 2 cores" in note for note in document["notes"]) == (workers > 2)


@pytest.mark.parametrize("per_host", [(1,), (4,), (8,), (4, 4)])
def test_rates_of_a_core_are_found_wherever_workers_share_cores_or_have_several(
    tmp_path: Path, per_host: tuple[int, ...]
) -> None:
    exact = replace(EXACT, host_cores=2, nic_rate=1e7)
    document = forecast(
        write(tmp_path, exact, Setup(per_host)),
        workers=2,
        hosts=1,
        links=[] if len(per_host) < 2 and per_host[0] > 1 else ["local=8GB/s"],
    )
    found = parameters(document)
    assert found["partition_rate"]["value"] == pytest.approx(40e6, rel=1e-3)
    assert found["join_rate"]["value"] == pytest.approx(20e6, rel=1e-3)
    assert found["local_rate"]["value"] == pytest.approx(8e9, rel=1e-3)
    assert document["forecast"]["wall_seconds"]["value"] == pytest.approx(truth(exact, Setup((2,))), rel=0.02)


def test_a_run_whose_workers_took_turns_is_as_slow_in_the_model_as_it_was(tmp_path: Path) -> None:
    crowded = replace(EXACT, spread=0.2, host_cores=2)
    (check,) = forecast(write(tmp_path, crowded, Setup((8,), launches=6, iterations=20)), workers=8)["checked"]
    assert abs(check["error"]) < 0.04


def test_hosts_with_other_cores_are_forecast_by_what_if(tmp_path: Path) -> None:
    folder = write(tmp_path, CROWDED, Setup((2,)))
    large = replace(CROWDED, host_cores=8)
    found = forecast(folder, workers=8, what_if=["cores=8"])
    assert found["forecast"]["wall_seconds"]["value"] == pytest.approx(truth(large, Setup((8,))), rel=0.08)
    assert parameters(found)["host_cores"]["origin"].endswith("set by --what-if")


def test_cores_that_were_not_recorded_are_not_divided(tmp_path: Path) -> None:
    folder = write(tmp_path, EXACT, Setup((2,)))
    document = forecast(folder, workers=8)
    assert parameters(document)["host_cores"]["value"] is None
    assert any("does not record the cores" in note for note in document["notes"])
    with pytest.raises(UsageError, match="a RESULT does not record the cores of its hosts"):
        forecast(folder, workers=8, what_if=["cores=4"])


def test_an_engine_on_cpus_shares_the_cores_of_a_machine_with_gpus(tmp_path: Path) -> None:
    folder = write(tmp_path, CROWDED, Setup((2,), gpu="NVIDIA H200", engine="native"))
    assert parameters(forecast(folder, workers=8))["host_cores"]["value"] == 2
    on_gpu = write(tmp_path / "gpu", CROWDED, Setup((2,), gpu="NVIDIA H200"))
    assert parameters(forecast(on_gpu, workers=8))["host_cores"]["value"] is None


def test_of_hosts_with_unequal_workers_the_one_counts_where_a_worker_has_the_fewest_cores() -> None:
    def workers(host: str, count: int, cores: int) -> list[Worker]:
        hardware = Hardware(affinity=f"0-{cores - 1}")
        return [Worker(rank=0, host=host, pid=1, name="", hardware=hardware) for _ in range(count)]

    assert cores_of_fullest_host(workers("node1", 8, 16) + workers("node2", 2, 4)) == 16
    assert cores_of_fullest_host(workers("node1", 8, 16) + workers("node2", 2, 2)) == 8
    assert cores_of_fullest_host(workers("node1", 2, 4) + workers("node2", 2, 2)) == 2


def test_of_hosts_with_different_cores_the_fewest_are_taken_and_named(tmp_path: Path) -> None:
    folders = [write(tmp_path, replace(EXACT, host_cores=cores), Setup((2,))) for cores in (4, 2)]
    document = forecast(*folders, workers=4)
    assert parameters(document)["host_cores"]["value"] == 2
    assert any("differ in their cores (2 to 4)" in note for note in document["notes"])


def relative_width(document: dict[str, Any]) -> float:
    low, high = document["forecast"]["wall_seconds"]["interval"]
    return float(high / low)


def test_an_interval_is_wider_where_launches_differ_and_never_narrower_than_the_error_of_the_model(
    tmp_path: Path,
) -> None:
    steady = forecast(write(tmp_path / "steady", EXACT, Setup((2,), launches=6)), workers=2)
    assert relative_width(steady) >= math.exp(2 * 1.96 * HOST_ERROR)
    assert steady["launch_spread"] < LAUNCH_SPREAD
    folders = []
    for seed, slower in enumerate((1.0, 1.3, 0.8, 1.6, 0.7, 1.1)):
        cluster = replace(EXACT, partition_rate=40e6 / slower, join_rate=20e6 / slower)
        folders.append(write(tmp_path / str(seed), cluster, Setup((2,), launches=1)))
    runs = gather_measurements([read_campaign(folder) for folder in folders], None).runs
    varying = replace(runs[0], launches=tuple(run.launches[0] for run in runs))
    assert spread_between_launches([varying]) > 0.2


def test_the_error_of_links_is_taken_where_links_take_the_time() -> None:
    assert model_error({NIC: 1.0}, 1) == LINK_ERROR
    assert model_error({JOIN: 2.0, PARTITION: 1.0}, 1) == pytest.approx(HOST_ERROR)
    assert model_error({JOIN: 2.0, PARTITION: 1.0}, 2) == pytest.approx(SHARED_CORES_ERROR)
    assert LINK_ERROR < model_error({JOIN: 1.0, NIC: 1.0}, 1) < HOST_ERROR < SHARED_CORES_ERROR


@pytest.mark.parametrize("workers", [4, 8])
def test_recorded_merges_of_more_workers_than_cores_took_as_long_as_forecast_from_two(workers: int) -> None:
    """Two cores of a virtual machine, which other programs used as well: 223, 550 and 980 ms."""
    two, more = (read_campaign(RECORDED / f"{count}-workers") for count in (2, workers))
    wall = median([iteration.wall_seconds for launch in more.launches for iteration in launch.timed_iterations])
    document = plain(predict([two], workers=workers))
    found = document["forecast"]["wall_seconds"]
    assert found["value"] == pytest.approx(wall, rel=0.25)
    assert found["interval"][0] <= wall <= found["interval"][1]
    assert document["forecast"]["limit"] == CORES
    without = plain(predict([two], workers=workers, what_if=[f"cores={workers}"]))["forecast"]["wall_seconds"]
    assert without["interval"][1] < wall  # as if each worker had a core
