"""Numbers as people write them."""

from __future__ import annotations

import pytest

from merge_bench.units import format_limit, parse_duration, parse_rate


@pytest.mark.parametrize(
    ("given", "limit_text"),
    [
        ("0.01", "0.01 seconds"),
        ("300ms", "0.3 seconds"),
        ("1", "1 second"),
        ("1500ms", "1.5 seconds"),
        ("90s", "90 seconds"),
        ("100s", "100 seconds"),
        ("2.5m", "2.5 minutes"),
        ("1h", "60 minutes"),
        ("2h", "2 hours"),
        ("4:01", "241 seconds"),
    ],
)
def test_a_limit_is_written_as_it_was_given(given: str, limit_text: str) -> None:
    assert format_limit(parse_duration(given)) == limit_text


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("12.5GB/s", 12.5e9),
        ("12.5 GB/s", 12.5e9),
        ("1.5GiB/s", 1.5 * 2**30),
        ("800MB/s", 8e8),
        ("100Gbit/s", 12.5e9),
        ("100Gb/s", 12.5e9),
        ("100Gbps", 12.5e9),
        ("100Mbit/s", 12.5e6),
        ("1Gibit/s", 2**27),
        ("5B/s", 5),
        (".5GB/s", 5e8),
    ],
)
def test_a_capital_b_is_bytes_and_bits_are_eight_times_less(text: str, bytes_per_second: float) -> None:
    assert parse_rate(text) == pytest.approx(bytes_per_second)


@pytest.mark.parametrize(
    "text", ["12.5", "12.5GB", "12.5gb/s", "12.5g/s", "fast", "-1GB/s", "1e9B/s", "1GB/h", "9" * 400 + "GB/s", ""]
)
def test_what_could_be_bits_or_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a rate; write it like 12\.5GB/s"):
        parse_rate(text)
