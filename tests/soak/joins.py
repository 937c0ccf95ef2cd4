"""Random joins against DuckDB for a given time, counted by kind, engine, exchange, pipeline and distribution.

python -m tests.soak.joins --seconds 100 --seed 1
"""

from __future__ import annotations

import random
import time
from collections import Counter

import click

from merge_bench.merge.distribution import RowDistribution
from merge_bench.merge.engines.base import JoinKind
from tests.helpers.joins import KEY_KINDS
from tests.merge import test_broadcast, test_how_dask
from tests.merge.engines import test_how


def check_some(rng: random.Random, found: Counter[str]) -> None:
    """Fourteen tables: eight shuffled, four broadcast, two by Dask. Raises AssertionError if a result is wrong."""

    def made(most: int) -> tuple[int, tuple[int, int], int, list[str]]:
        rows = rng.randint(0, most), rng.randint(0, most)
        return rng.randrange(2**31), rows, rng.randint(1, 4), rng.choices(KEY_KINDS, k=rng.choice((1, 1, 2)))

    for parts in (False, True) * 4:
        how = rng.choice(list(JoinKind))
        test_how.check_random(*made(60), how, parts, test_how.SMALL)
        found.update(f"{how.value} {each} ucx pipeline={parts} shuffle" for each in test_how.ENGINES)
    for bucket in (test_broadcast.IN_PLACE, test_broadcast.IN_BUCKETS) * 2:
        way = rng.choice(test_broadcast.WAYS)
        test_broadcast.check_random(*made(90), way, bucket, rng.random() < 0.5)
        found.update(f"{way[0].value} {each} ucx pipeline=False broadcast" for each in test_broadcast.ENGINES)
    for how, sent in rng.sample(test_how_dask.WAYS, 2):
        test_how_dask.check_random(*made(60), (how, sent))
        found[f"{how.value} pandas dask pipeline=False {RowDistribution(sent).distribution_name}"] += 1


@click.command()
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=100.0)
@click.option("--seed", type=int, default=1)
def main(seconds: float, seed: int) -> None:
    """Compare random joins with DuckDB, and print how many."""
    rng, found, end = random.Random(seed), Counter[str](), time.monotonic() + seconds
    while time.monotonic() < end:
        check_some(rng, found)
    for name, count in sorted(found.items()):
        click.echo(f"{count:7,} {name}")
    click.echo(f"{found.total():7,} results with seed {seed}, none wrong")


if __name__ == "__main__":
    main()
