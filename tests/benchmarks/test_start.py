"""What `benchmarks.start` makes of imports, costs and the records of a run."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from benchmarks import start
from benchmarks.start import Measured, StartCost
from merge_bench.records.reader import read_campaign
from tools.reference.measured import Campaign

RUN = Path(__file__).parents[1] / "data" / "campaigns" / "run"


def test_modules_are_read_from_what_importtime_prints_among_other_lines() -> None:
    printed = """import time: self [us] | cumulative | imported package
import time:       171 |        171 |   zipimport
merge_bench: a warning
import time:      1200 |       2000 |     numpy
import time:        90 |       9000 | merge_bench.cli
"""
    modules = start.imported_modules(printed)
    assert modules == ["zipimport", "numpy", "merge_bench.cli"]
    measured = Measured([StartCost(0.3, 1.0), StartCost(0.2, 3.0), StartCost(0.4, 2.0)], modules)
    assert (measured.own_modules, measured.heavy_packages) == (1, "numpy")
    assert (measured.cell("cpu"), measured.cell("wall")) == ("0.20, 0.30", "1.00, 2.00")


def test_a_cell_has_one_value_for_each_checkout() -> None:
    both = [Path("/old"), Path("/new")]
    measured = {
        (name, checkout): Measured([StartCost(1.0 + number, 2.0)], ["merge_bench", *["numba"] * number])
        for name in start.COMMANDS
        for number, checkout in enumerate(both)
    }
    first = start.command_rows(measured, both)[0]
    assert first == ["`--help`", "1.00, 1.00 → 2.00, 2.00", "2.00, 2.00 → 2.00, 2.00", "1 → 1", "none → numba"]


def test_the_parts_of_a_start_add_up_to_the_time_of_the_first_timed_iteration() -> None:
    campaign = read_campaign(RUN)
    launch = campaign.launches[0]
    assert launch.line is not None
    line = msgspec.structs.replace(launch.line, startup_parts={"processes": 0.1, "scheduler": 0.2})
    campaign = replace(campaign, launches=(replace(launch, line=line), *campaign.launches[1:]))
    began = campaign.head.time - 1.5
    parts = start.start_parts(campaign, began)
    first = launch.timed_iterations[0]
    assert parts["in all"] == pytest.approx(first.time - first.wall_seconds - began)
    assert sum(parts.values()) == pytest.approx(2 * parts["in all"])
    assert list(parts.values())[:1] == pytest.approx([1.5])
    assert parts["Dask's processes are started"] == 0.1
    older = start.start_parts(read_campaign(RUN), began)
    assert parts["in all"] == older["in all"]
    rows = start.merge_rows({Path("/old"): [older], Path("/new"): [parts]})
    assert rows[-1][0] == "in all"
    assert ["Dask's processes are started", "-", "0.10 (0.10–0.10)"] in rows


def test_a_stored_table_is_one_that_the_page_of_measurements_reads() -> None:
    values = {"title": "Start", "place": 48, **start.conditions(2, [Path("/here")])}
    values |= {"about": 'A "quoted" text → more.', "columns": ["a", "b"], "rows": [["`1`", "2"], ["3", "4"]]}
    assert Campaign(**tomllib.loads(start.toml_text(values))).rows == [["`1`", "2"], ["3", "4"]]
