"""Counts as people write them."""

from __future__ import annotations

import pytest

from merge_bench.errors import UsageError
from merge_bench.probe.shared.sizes import parse_counts, parse_sizes


def test_counts_double_and_take_both_kinds_of_suffixes() -> None:
    assert parse_counts("16Ki..128Ki") == (16384, 32768, 65536, 131072)
    assert parse_counts("1e6, 2M,1_000") == (1000, 1_000_000, 2_000_000)
    assert parse_counts("10..30+10") == (10, 20, 30)
    assert len(parse_counts("16Ki..128Mi")) == 14


@pytest.mark.parametrize(("text", "word"), [("0", "0"), ("32Gi", "16Gi"), ("9..3", "9..3"), ("many", "many")])
def test_what_is_no_count_is_named(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=f"^--counts {text}: .*{word}"):
        parse_counts(text)


def test_sizes_and_counts_differ_in_what_k_means() -> None:
    assert parse_sizes("16k") == (16384,)
    assert parse_counts("16k") == (16000,)
