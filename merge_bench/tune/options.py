"""The options of `tune` that `run` does not have; the command and the rules of the service are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from merge_bench.config import parsers
from merge_bench.config.option import Options, choice_option, value_option
from merge_bench.tune.strategies import strategies


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Options):
    """Options of `tune`: what is tried, and for how long.

    space: File that lists the settings to try; by default the shipped space.toml.
    only: Vary only these settings, or values such as message-size=4m; by default all of the tuning space.
    strategy: Search strategy.
    metric: Metric to improve.
    threshold: Ignore gains below this. [2%]
    most_blocks: Judge a candidate after at most this many blocks (rounds of launches). [8, at least 3]
    confirm: Number of blocks (rounds of launches) of the confirmation at each size. [8, at least 6]
    budget: Limit on the total time of all launches, confirmation included, such as 30m or 1h. Settings that cannot be
        judged in this time are not tried.
    max_launches: Maximum number of launches of the search.
    output: Config file to write; by default ./tuned-HOST.cfg.
    """

    space: str | None = value_option(parsers.parse_path, None, "FILE")
    only: tuple[str, ...] = value_option(parsers.parse_names, (), "NAME[,NAME]")
    strategy: str = choice_option("|".join(strategies()), next(iter(strategies())))
    metric: str = choice_option("throughput|bandwidth", "throughput")
    threshold: float = value_option(parsers.parse_percent, 0.02, "PERCENT")
    most_blocks: int = value_option(parsers.count_parser(3), 8, "N")
    confirm: int = value_option(parsers.count_parser(6), 8, "N")
    budget: float | None = value_option(parsers.parse_positive_duration, None, "DURATION")
    max_launches: int | None = value_option(parsers.count_parser(1), None, "N")
    output: str | None = value_option(parsers.parse_path, None, "FILE")
