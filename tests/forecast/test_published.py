"""What the model makes of the published merges of 2022."""

from __future__ import annotations

import pytest

from benchmarks.predict_published import LARGE, cells, other_gpus, other_sizes, tables


def test_the_tables_have_a_row_for_each_forecast() -> None:
    sizes, gpus, _ = tables().split("\n\n")
    assert len(sizes.splitlines()) == 2 + len(list(other_sizes(cells())))
    assert len(gpus.splitlines()) == 2 + len(list(other_gpus(cells())))


def test_seconds_follow_from_the_published_rates() -> None:
    (cell,) = [one for one in cells() if (one.cluster, one.config, one.rows) == ("gadi-v100", "optimized", LARGE)]
    assert cell.wall == pytest.approx(12.8e9 / 13282186362.88)  # 16 · 25e6 rows · 32 B
    assert cell.exchange == pytest.approx(750e6 / 1234803097.6)  # 15/16 of both chunks


def test_one_size_forecasts_another_no_better_than_the_page_says() -> None:
    errors = {(name, fitted): said / true - 1 for name, fitted, _, said, true in other_sizes(cells())}
    assert len(errors) == 8
    assert min(abs(error) for error in errors.values()) > 0.1
    assert errors["16 A100, default", 1_000_000] > 4


def test_waiting_explains_the_a100_runs_from_the_v100_ones() -> None:
    found = list(other_gpus(cells()))
    assert len(found) == 3
    for _, naive, explained, true in found:
        assert abs(explained / true - 1) < 0.05
        assert abs(naive / true - 1) > 0.2
