"""Ratios from launches made by hand."""

from __future__ import annotations

import pytest

from benchmarks import command
from benchmarks.peer import ratios
from benchmarks.peer.ratios import Sample, Spread, fastest, standings


def launches(name: str, *walls: float | None, peak: int | None = None) -> list[Sample]:
    """One launch a block, with one iteration each; None is a launch that failed."""
    return [Sample(name, block, () if wall is None else (wall,), peak) for block, wall in enumerate(walls)]


def test_above_one_means_that_ours_is_faster() -> None:
    line = standings(launches("ours", 2.0) + launches("peer", 4.0), ["ours", "peer"], "ours")[1]
    assert line.ratio is not None
    assert line.ratio.median == 2.0


def test_a_ratio_is_made_within_its_block() -> None:
    # The machine slowed down threefold after the first block: block by block the ratio is 2 all the same.
    ours, peer = launches("ours", 1.0, 3.0, 3.0), launches("peer", 2.0, 6.0, 6.0)
    line = standings(ours + peer, ["ours", "peer"], "ours")[1]
    assert line.ratio is not None
    assert (line.ratio.low, line.ratio.median, line.ratio.high) == (2.0, 2.0, 2.0)


def test_few_blocks_give_least_and_greatest_without_a_coverage() -> None:
    ratio = Spread.of((1.5, 1.2, 1.9))
    assert (ratio.low, ratio.median, ratio.high, ratio.coverage) == (1.2, 1.5, 1.9, None)


def test_nine_blocks_give_the_second_and_the_eighth() -> None:
    ratio = Spread.of([float(block + 1) for block in range(9)])
    assert (ratio.low, ratio.median, ratio.high) == (2.0, 5.0, 8.0)
    assert ratio.coverage == pytest.approx(1 - 2 * 10 / 512)


def test_a_launch_counts_with_the_median_of_its_iterations() -> None:
    assert Sample("peer", 0, (1.0, 9.0, 2.0)).wall == 2.0


def test_blocks_in_which_one_of_the_two_failed_make_no_ratio_and_are_counted() -> None:
    samples = launches("ours", 1.0, None, 1.0) + launches("peer", 2.0, 2.0, None)
    ours, peer = standings(samples, ["ours", "peer"], "ours")
    assert (ours.failed, peer.failed) == (1, 1)
    assert peer.ratio is not None
    assert peer.ratio.blocks == 1


def test_a_peer_that_always_failed_has_no_numbers() -> None:
    line = standings(launches("ours", 1.0) + launches("peer", None), ["ours", "peer"], "ours")[1]
    assert (line.wall, line.ratio, line.failed, line.peak_bytes) == (None, None, 1, None)


def test_the_fastest_variant_of_a_family_counts() -> None:
    samples = launches("ours", 1.0) + launches("a", 3.0) + launches("b", 2.0) + launches("c", None)
    lines = standings(samples, ["ours", "a", "b", "c"], "ours")
    assert fastest(lines, {"ours": "ours", "a": "peer", "b": "peer", "c": "peer"}) == {"ours", "b"}


def test_the_largest_peak_is_shown() -> None:
    samples = [Sample("ours", 0, (1.0,), 5), Sample("ours", 1, (1.0,), 7), Sample("ours", 2, (1.0,), None)]
    assert standings(samples, ["ours"], "ours")[0].peak_bytes == 7


def test_table_says_launches_failures_and_what_the_interval_is() -> None:
    samples = launches("ours", 1.0, 1.0, peak=2**30) + launches("peer", 2.0, None)
    lines = standings(samples, ["ours", "peer"], "ours")
    rows = ratios.cells(lines, {"peer": "7.1"}, {"peer": "verified"}, {"peer"}, data=2**30)
    assert rows[0] == ("ours", "-", "2", "1", "1.000", "-", "-", "1.00", "-")
    assert rows[1] == ("peer *", "7.1", "1 of 2", "2", "0.500", "2.00", "2.00–2.00 (min–max of 1)", "-", "verified")
    assert (
        len(
            {
                line.index("launches")
                for line in command.aligned(ratios.HEADINGS, rows, ratios.TEXT).splitlines()
                if "launches" in line
            }
        )
        == 1
    )
    assert command.table(ratios.HEADINGS, rows, ratios.TEXT).splitlines()[3].startswith("| peer \\* | 7.1 |")


def test_no_ratio_is_made_of_nothing() -> None:
    line = standings(launches("ours", None) + launches("peer", 1.0), ["ours", "peer"], "ours")[1]
    assert (line.wall, line.ratio) == (1.0, None)
