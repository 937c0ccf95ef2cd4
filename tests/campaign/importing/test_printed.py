"""Single numbers: units, rounding, and what is none."""

from __future__ import annotations

import pytest

from merge_bench.campaign.printed_text import parse_rate, parse_size, parse_time


@pytest.mark.parametrize(
    ("text", "value", "resolution"),
    [
        ("384 B", 384, 1),
        ("1.21 kiB", 1239.04, 10.24),
        ("1.21 KiB", 1239.04, 10.24),
        ("488.28 MiB", 488.28 * 2**20, 0.01 * 2**20),
        ("11.92 GiB", 11.92 * 2**30, 0.01 * 2**30),
        ("1.16 TiB", 1.16 * 2**40, 0.01 * 2**40),
        ("1.50 PiB", 1.5 * 2**50, 0.01 * 2**50),
        ("1.50 GB", 1.5e9, 1e7),
    ],
)
def test_sizes_are_read_in_their_units_with_what_the_last_digit_stands_for(
    text: str, value: float, resolution: float
) -> None:
    found = parse_size(text, 7)
    assert found.value == pytest.approx(value, rel=1e-15)
    assert found.resolution == pytest.approx(resolution, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((value - resolution / 2, value + resolution / 2), rel=1e-12)
    assert found.line == 7


@pytest.mark.parametrize(
    ("text", "value", "resolution"),
    [
        ("96.37 s", 96.37, 0.01),
        ("49.16 ms", 0.04916, 1e-5),
        ("123.45 us", 123.45e-6, 1e-8),
        ("123.456 us", 123.456e-6, 1e-9),
        ("17.250 ns", 17.25e-9, 1e-12),
        ("1.000 s", 1.0, 1e-3),
    ],
)
def test_times_are_read_in_their_units(text: str, value: float, resolution: float) -> None:
    found = parse_time(text, 1)
    assert (found.value, found.resolution) == pytest.approx((value, resolution), rel=1e-15)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [("20m 34s", 1234, 1), ("3hr 25m", 12_300, 60), ("34hr 17m", 123_420, 60), ("14d 6hr", 1_231_200, 3600)],
)
def test_long_times_are_cut_off_and_not_rounded(text: str, value: float, unit: float) -> None:
    found = parse_time(text, 1)
    assert (found.value, found.low, found.high, found.resolution) == (value, value, value + unit, unit)


def test_a_rate_is_a_size_a_second() -> None:
    assert parse_rate("1.06 GiB/s", 1) == parse_size("1.06 GiB", 1)


@pytest.mark.parametrize("text", ["", "GiB", "1.06", "1.06 GB/s", "-1 GiB", "1,06 GiB", "nan GiB", "1e3 B", "1.06 gib"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text, 1)


@pytest.mark.parametrize("text", ["", "5.14", "5.14 S", "inf s", "5.14 min", "1m 2m", "1s 2m", "5.14 s s", "٣ s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text, 1)


@pytest.mark.parametrize("text", ["1.06 GiB", "1.06 GiB/", "1.06/s", "inf B/s", "nan B/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate(text, 1)
