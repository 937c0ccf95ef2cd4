"""Into how many buckets all workers agree to split their chunks."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from merge_bench.merge.engines.cpu_base import FEWEST_ROWS, WIDE_L2, buckets_per_worker, choose_bucket_rows
from merge_bench.merge.partition import LINES, PLAIN, most_total_buckets

JOIN_ROWS = 1 << 17


def distance_from_even(rows: int, streams: int) -> float:
    """How far the rows of a stream are from 2**k or 1.5 * 2**k, relatively."""
    mean = rows / streams
    power = 2.0 ** math.floor(math.log2(mean))
    return min(abs(mean / even - 1) for even in (power, 1.5 * power, 2 * power))


@given(chunk=st.integers(0, 10**9), workers=st.integers(1, 1024), way=st.sampled_from([PLAIN, LINES]))
@example(chunk=64_000_000, workers=2, way=PLAIN)
@example(chunk=64_000_000, workers=2, way=LINES)
@example(chunk=2**25, workers=2, way=PLAIN)
def test_bounds(chunk: int, workers: int, way: str) -> None:
    most = most_total_buckets([way])
    count = buckets_per_worker(2 * chunk * workers, workers, JOIN_ROWS, most)
    assert count >= 1
    if count > 1:
        assert count * workers <= most
        assert 2 * chunk / count >= FEWEST_ROWS / 2
    if count >= 64:  # with fewer there may be none that are better
        assert distance_from_even(2 * chunk, count * workers) > 0.004


def test_streams_never_lie_at_a_power_of_two() -> None:
    """512 streams of 2**25 rows would be 2**16 rows apart, each of them."""
    assert buckets_per_worker(4 * 2**25, 2, JOIN_ROWS, 512) == 254
    assert buckets_per_worker(4 * 35_000_000, 2, JOIN_ROWS, 512) in range(255, 268)


def test_cores_with_a_small_l2_cache_get_half_as_many_buckets() -> None:
    def count(l2_bytes: int | None) -> int:
        return buckets_per_worker(4 * 25_000_000, 2, choose_bucket_rows(96_000, l2_bytes), 2048)

    assert count(WIDE_L2) == count(None) in range(500, 522)
    assert count(WIDE_L2 - 1) in range(250, 262)
