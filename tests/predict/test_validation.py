"""The benchmark that holds forecasts against measurements, without its test hosts."""

from __future__ import annotations

from benchmarks.predict_validation import HEADINGS, Target, rows_of


def test_wall_exchange_and_bandwidth_stand_beside_what_was_measured() -> None:
    forecast = {
        "wall_seconds": {"value": 1.1, "interval": [1.0, 1.2]}, "phases_seconds": {"exchange": 0.9},
        "bandwidth_bytes_per_second": {"value": 9e6, "interval": [8e6, 9.5e6]}, "limit": "join",
    }  # fmt: skip
    measured = {
        "wall_seconds": {"median": 1.0}, "phases_seconds": {"exchange": 1.0},
        "bandwidth_bytes_per_second": {"harmonic_mean": 1e7},
    }  # fmt: skip
    rows = rows_of(Target(4, 2, rate=0.5), 100.0, forecast, measured)
    assert all(len(row) == len(HEADINGS) for row in rows)
    assert rows[0] == ["4", "2", "50", "wall (ms)", "1100", "1000 to 1200", "1000", "+10.0", "join"]
    assert [row[7] for row in rows] == ["+10.0", "-10.0", "-10.0"]
