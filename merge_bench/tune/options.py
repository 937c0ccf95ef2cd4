"""The options of `tune` that `run` does not have; the command and the rules of the service are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from merge_bench.config import parsers
from merge_bench.config.option import Options, choice, option
from merge_bench.tune.strategies import strategies


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Options):
    """Options of `tune`: what is tried, and for how long."""

    space: str | None = option(
        parsers.path, None, "File that lists the settings to try; by default the shipped space.toml.", "FILE"
    )
    only: tuple[str, ...] = option(
        parsers.names,
        (),
        "Vary only these settings, or values such as message-size=4m; by default all of the tuning space.",
        "NAME[,NAME]",
    )
    strategy: str = choice("|".join(strategies()), next(iter(strategies())), "Search strategy.")
    metric: str = choice("throughput|bandwidth", "throughput", "Metric to improve.")
    threshold: float = option(parsers.percent, 0.02, "Ignore gains below this. [2%]", "PERCENT")
    most_blocks: int = option(
        parsers.count(3),
        8,
        "Judge a candidate after at most this many blocks (rounds of launches). [8, at least 3]",
        "N",
    )
    confirm: int = option(
        parsers.count(6),
        8,
        "Number of blocks (rounds of launches) of the confirmation at each size. [8, at least 6]",
        "N",
    )
    budget: float | None = option(
        parsers.duration,
        None,
        "Limit on the total time of all launches, confirmation included, such as 30m or 1h. Settings that cannot be"
        " judged in this time are not tried.",
        "DURATION",
    )
    max_launches: int | None = option(parsers.count(1), None, "Maximum number of launches of the search.", "N")
    output: str | None = option(parsers.path, None, "Config file to write; by default ./tuned-HOST.cfg.", "FILE")
