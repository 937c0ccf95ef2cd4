"""Message sizes and counts as people write them."""

from __future__ import annotations

import pytest

from merge_bench.errors import UsageError
from merge_bench.probe.shared.options import parse_element_counts, parse_message_sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8,65536", (8, 65536)),
        ("64k, 1", (1, 65536)),
        ("1..16", (1, 2, 4, 8, 16)),
        ("3..20", (3, 6, 12)),
        ("1K..3K+1K", (1024, 2048, 3072)),
        ("8,1..8,8", (1, 2, 4, 8)),
        ("4MiB", (4 << 20,)),
    ],
)
def test_what_is_written_is_read(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_message_sizes(text) == sizes


def test_the_default_range_has_the_powers_of_two() -> None:
    assert parse_message_sizes("1..4M") == tuple(2**power for power in range(23))


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "8..1", "1..1T", "x", "1..", "1..8+0", "0..8", "1.5", "1K..1000K+1", "8;9"]
)
def test_nonsense_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--sizes .*: .*\w+ \w+"):
        parse_message_sizes(text)


def test_counts_double_and_take_both_kinds_of_suffixes() -> None:
    assert parse_element_counts("16Ki..128Ki") == (16384, 32768, 65536, 131072)
    assert parse_element_counts("1e6, 2M,1_000") == (1000, 1_000_000, 2_000_000)
    assert parse_element_counts("10..30+10") == (10, 20, 30)
    assert len(parse_element_counts("16Ki..128Mi")) == 14


@pytest.mark.parametrize(("text", "word"), [("0", "0"), ("32Gi", "16Gi"), ("9..3", "9..3"), ("many", "many")])
def test_what_is_no_count_is_named(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=f"^--counts {text}: .*{word}"):
        parse_element_counts(text)


def test_sizes_and_counts_differ_in_what_k_means() -> None:
    assert parse_message_sizes("16k") == (16384,)
    assert parse_element_counts("16k") == (16000,)
