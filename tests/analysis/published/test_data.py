"""The stored numbers: complete, in the units that they claim, and consistent with what they were computed from.

Sums of the published values were taken from the sources by another program than the one that wrote the files.
"""

from __future__ import annotations

import csv
import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from merge_bench.analysis import published
from merge_bench.config.reader import read_config

ROOT = Path(__file__).parents[3]
PREFIX = "analysis/published_data/"
FOLDER = ROOT / "results" / "published"
UNITS = {"us": 1e-6, "MB/s": 1e6, "GB/s": 1e9, "MiB/s": 2**20, "GiB/s": 2**30}
MIB, GIB = 2**20, 2**30
Line = dict[str, str]


def lines(name: str, series: str | None = None, unit: str | None = None, statistic: str | None = None) -> list[Line]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return [
            line
            for line in csv.DictReader(stream)
            if series in (None, line.get("series"))
            and unit in (None, line["published_unit"])
            and statistic in (None, line.get("statistic"))
        ]


def values(found: Sequence[Line], column: str = "published_value") -> list[float]:
    return [float(line[column]) for line in found]


def powers(first: int, last: int) -> list[str]:
    return [str(2**power) for power in range(first, last + 1)]


@pytest.mark.parametrize(
    ("name", "series", "total"),
    [
        ("nthu-hw4-latency", "before", 3765.89),
        ("nthu-hw4-latency", "after", 1734.16),
        ("nthu-hw4-latency", "two-nodes", 2880.39),
        ("nthu-hw4-latency", "one-node", 1707.78),
        ("nthu-hw4-bandwidth", "before", 1734.16),
        ("nthu-hw4-bandwidth", "after", 99727.19),
        ("nthu-hw4-bandwidth", "two-nodes", 37822.03),
        ("nthu-hw4-bandwidth", "one-node", 104343.09),
        ("hust-rma-put", "overlapping", 1321.05),
        ("hust-rma-put", "non-overlapping", 1365.98),
    ],
)
def test_every_size_is_there_once_and_the_values_have_the_sum_of_the_source(
    name: str, series: str, total: float
) -> None:
    found = lines(name, series)
    first, last = (3, 23) if name == "hust-rma-put" else (0, 22)
    assert [line["published_size_bytes"] for line in found] == powers(first, last)
    assert [line["size_bytes"] for line in found] == powers(first, last)
    assert round(sum(values(found)), 2) == total


@pytest.mark.parametrize(
    ("series", "sums"),
    [
        ("sharp", {"us": (101506.48, 101493.70, 101535.19), "GB/s": (437.79, 427.80, 442.87)}),
        ("ucp", {"us": (1673710.83, 1648550.83, 1691054.34), "GB/s": (51.42, 50.11, 53.13)}),
    ],
)
def test_reduce_scatter_has_every_count_and_the_sums_of_the_source(
    series: str, sums: dict[str, tuple[float, float, float]]
) -> None:
    for unit, totals in sums.items():
        for statistic, total in zip(("mean", "min", "max"), totals, strict=True):
            found = lines("cuhk-reduce-scatter", series, unit, statistic)
            assert [line["published_count"] for line in found] == powers(14, 27)
            assert [line["published_size_bytes"] for line in found] == powers(16, 29)
            assert round(sum(values(found)), 2) == total


def test_the_four_delays_are_those_of_the_source() -> None:
    found = {line["series"]: line["published_value"] for line in lines("krakow-mpi-delay")}
    assert found == {
        "std-one-node": "0.28",
        "buff-one-node": "2.25",
        "std-two-nodes": "429.87",
        "buff-two-nodes": "483.27",
    }
    ratios = {kind: float(found[f"{kind}-two-nodes"]) / float(found[f"{kind}-one-node"]) for kind in ("std", "buff")}
    notes = published.find_dataset("krakow-mpi-delay").notes[0]
    assert all(f"= {ratio:.0f} for" in notes for ratio in ratios.values())
    assert "~18x" in notes


def test_si_values_are_the_published_ones_in_their_units_but_for_the_corrected() -> None:
    corrected = []
    for path in sorted(FOLDER.glob("*.csv")):
        for line in lines(path.stem):
            if not line["published_value"] or line["valid"] == "false":
                continue
            si = float(line.get("seconds") or line["bytes_per_second"])
            plain = float(line["published_value"]) * UNITS[line["published_unit"]]
            if si != pytest.approx(plain, rel=1e-12):
                corrected.append((path.stem, line.get("series") or line["table"], si / plain, bool(line["note"])))
    assert [one for one in corrected if one[0] != "cuhk-reduce-scatter"] == [("gadi-v100", "2", 1 / 1024, True)]
    assert [one for one in corrected if one[0] == "cuhk-reduce-scatter"] == [
        ("cuhk-reduce-scatter", "sharp", pytest.approx(0.25, rel=1e-12), True)
    ] * 42


def test_only_the_repeated_column_is_invalid_and_it_has_no_si_value() -> None:
    invalid = {
        (path.stem, line.get("series"))
        for path in FOLDER.glob("*.csv")
        for line in lines(path.stem)
        if line["valid"] != "true"
    }
    assert invalid == {("nthu-hw4-bandwidth", "before")}
    before = lines("nthu-hw4-bandwidth", "before")
    repeated = [line["published_value"] for line in lines("nthu-hw4-latency", "after")]
    assert [line["published_value"] for line in before] == repeated
    assert {(line["valid"], line["bytes_per_second"], line["seconds"]) for line in before} == {("false", "", "")}
    assert all("digit for digit" in line["note"] for line in before)


def test_bus_bandwidths_follow_from_times_with_four_ranks_and_the_size_of_a_part() -> None:
    slowest = {"mean": "mean", "min": "max", "max": "min"}
    for series in ("sharp", "ucp"):
        for statistic, of_time in slowest.items():
            times = lines("cuhk-reduce-scatter", series, "us", of_time)
            rates = lines("cuhk-reduce-scatter", series, "GB/s", statistic)
            for time, rate in zip(times, rates, strict=True):
                micros, size = float(time["published_value"]), int(time["published_size_bytes"])
                low, high = (3 * size / (micros + half) / 1e3 for half in (0.005, -0.005))
                assert low - 0.0051 <= float(rate["published_value"]) <= high + 0.0051
                stored = float(rate["bytes_per_second"])
                vector = int(rate["size_bytes"])
                assert stored == pytest.approx(vector / float(time["seconds"]) * 3 / 4, rel=6e-3)


def test_four_times_the_printed_size_would_not_have_fitted_through_a_port_with_sharp() -> None:
    found = lines("cuhk-reduce-scatter", "sharp", "us", "mean")
    rates = [int(line["published_size_bytes"]) / float(line["seconds"]) for line in found]
    assert f"{4 * max(rates) / 1e9:.1f}" == "46.7"
    assert 4 * max(rates) > 25e9
    assert max(rates) < 12.5e9
    assert {int(line["size_bytes"]) // int(line["published_size_bytes"]) for line in found} == {1}
    over_ucp = lines("cuhk-reduce-scatter", "ucp")
    assert {int(line["size_bytes"]) // int(line["published_size_bytes"]) for line in over_ucp} == {4}
    assert {int(line["count"]) * 4 == int(line["size_bytes"]) for line in over_ucp} == {True}


def test_puts_one_by_one_take_longer_than_overlapping_ones_and_both_exceed_a_100_gbit_port() -> None:
    overlapping, single = (values(lines("hust-rma-put", s), "seconds") for s in ("overlapping", "non-overlapping"))
    assert all(a < b for a, b in zip(overlapping, single, strict=True))
    assert [f"{8 * 2**23 / seconds[-1] / 1e9:.1f}" for seconds in (overlapping, single)] == ["101.7", "101.4"]
    assert single == sorted(single)


def test_latency_and_bandwidth_of_two_nodes_agree_on_the_link() -> None:
    latency = values(lines("nthu-hw4-latency", "two-nodes"), "seconds")
    bandwidth = values(lines("nthu-hw4-bandwidth", "two-nodes"), "bytes_per_second")
    assert 2**22 / latency[-1] == pytest.approx(bandwidth[-1], rel=0.01)
    assert latency[4:] == sorted(latency[4:])


def test_printed_percentages_are_ratios_within_what_rounding_leaves() -> None:
    checked = 0
    for effect in published.settings_effects("gadi-v100-settings"):
        if effect.published_percent is None:
            continue
        assert effect.value is not None
        assert effect.baseline is not None
        digit = 0.005 * (GIB if effect.metric == "throughput" else MIB)
        low, high = ((effect.value + e) / (effect.baseline - e) * 100 for e in (-digit, digit))
        assert low - 0.05 <= effect.published_percent <= high + 0.05
        assert effect.ratio == pytest.approx(effect.value / effect.baseline, abs=5e-5)
        assert effect.figure_ratio is None or effect.figure_ratio * 100 == pytest.approx(
            effect.published_percent, abs=0.1
        )
        checked += 1
    assert checked == 11


def test_every_bar_of_the_figure_is_there() -> None:
    effects = published.settings_effects("gadi-v100-settings")
    bars = {e.figure_label: e.figure_ratio for e in effects if e.figure_label and e.metric == "throughput"}
    assert bars == {
        "Base": 1,
        "TM": 1.021,
        "Uni": 1.028,
        "BG": 1.096,
        "mutex": 1.103,
        "N-B": 1.161,
        "RNDV": 1.297,
        "Optimal": 2.173,
    }
    assert f"{9.28 / 4.27:.3f}" == "2.173"


def test_all_four_bandwidths_of_section_2_give_the_value_that_table_2_prints_in_the_wrong_unit() -> None:
    effects = published.settings_effects("gadi-v100-settings")
    derived = [
        e.value / e.published_percent * 100 / MIB
        for e in effects
        if e.metric == "bandwidth" and e.value is not None and e.published_percent is not None
    ]
    assert len(derived) == 4
    assert all(506.9 < value < 507.5 for value in derived)
    (cell,) = [r for r in published.merge_results("gadi-v100") if r.published == "507.21 GiB/s"]
    assert cell.value == pytest.approx(507.21 * MIB)
    assert cell.note is not None
    assert "MiB/s is meant" in cell.note


@pytest.mark.parametrize("name", ["gadi-v100", "gadi-dgx-a100"])
def test_no_worker_needs_longer_for_its_transfers_than_the_merge_takes(name: str) -> None:
    """A worker sends 15/16 of its sixteenth: bandwidth ≥ throughput × 15/16 ÷ 16."""
    cells = {(r.rows_per_chunk, r.config, r.metric): r.value for r in published.merge_results(name)}
    pairs = [(key[:2], value) for key, value in cells.items() if key[2] == "throughput"]
    assert len(pairs) == {"gadi-v100": 4, "gadi-dgx-a100": 5}[name]
    for key, throughput in pairs:
        bandwidth = cells[(*key, "bandwidth")]
        assert throughput is not None
        assert bandwidth is not None
        assert throughput * 15 / 256 < bandwidth < throughput


@pytest.mark.parametrize(
    ("name", "config", "file"),
    [
        ("gadi-v100", "optimized", "nthu-2022-v100.cfg"),
        ("gadi-dgx-a100", "optimized", "nthu-2022-v100.cfg"),
        ("gadi-dgx-a100", "optimized-rndv-auto", "nthu-2022-dgx-a100.cfg"),
    ],
)
def test_table_1_is_what_the_shipped_config_sets(name: str, config: str, file: str) -> None:
    shipped = read_config(ROOT / "configs" / file, os.environ)
    assert dict(published.find_dataset(name).configs[config]) == shipped.variable_values


def test_the_optimal_setting_is_table_1() -> None:
    optimal = published.settings_effects("gadi-v100-settings")[-1]
    assert optimal.figure_label == "Optimal"
    assert dict(optimal.variables) == dict(published.find_dataset("gadi-v100").configs["optimized"])


def test_every_file_is_named_by_a_dataset_and_shipped_with_the_package() -> None:
    files = {path.relative_to(FOLDER) for path in FOLDER.rglob("*") if path.is_file()}
    with (ROOT / "pyproject.toml").open("rb") as stream:
        patterns = tomllib.load(stream)["tool"]["setuptools"]["package-data"]["merge_bench"]
    package = ROOT / "merge_bench"
    inside = [pattern.removeprefix(PREFIX) for pattern in patterns if pattern.startswith(PREFIX)]
    shipped = {path.relative_to(FOLDER) for pattern in inside for path in FOLDER.glob(pattern)}
    assert shipped | {file for file in files if file.suffix == ".toml"} == files
    assert "**/*.toml" in patterns
    assert os.readlink(package / PREFIX.rstrip("/")) == "../../results/published"
    owners = {Path(data.path.name) for data in published.datasets().values()}
    assert {Path(file.parts[0]) for file in files if file.suffix != ".toml"} == owners


def test_no_file_holds_a_personal_address_or_number() -> None:
    for path in FOLDER.rglob("*"):
        if path.is_file() and path.suffix in (".toml", ".csv", ".out"):
            content = path.read_text(encoding="utf-8")
            assert not re.search(r"[\w.]+@\w+\.\w|/scratch/|/home", content), path
            if path.suffix == ".toml":
                assert not re.search(r"\b\d{9}\b", content), path
