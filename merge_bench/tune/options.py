"""The options of `tune` that `run` does not have; the command and the rules of the service are made from them."""

from __future__ import annotations

from merge_bench.config import parsers
from merge_bench.config.options import Option
from merge_bench.tune.strategies import strategies

OPTIONS: tuple[Option, ...] = (
    Option("only", parsers.names, None, "Vary only these settings, or values such as message-size=4m; by default all of"
                                        " the tuning space.", "NAME[,NAME]"),
    Option("strategy", parsers.word, next(iter(strategies())), "").taking([*strategies()], "Search strategy."),
    Option("metric", parsers.word, "throughput", "").taking(["throughput", "bandwidth"], "Metric to improve."),
    Option("threshold", parsers.percent, 0.02, "Ignore gains below this. [2%]", "PERCENT"),
    Option("most-blocks", parsers.count(3), 8, "Judge a candidate after at most this many blocks (rounds of launches)."
                                               " [8, at least 3]", "N"),
    Option("confirm", parsers.count(6), 8, "Number of blocks (rounds of launches) of the confirmation at each size."
                                           " [8, at least 6]", "N"),
    Option("budget", parsers.duration, None, "Limit on the total time of all launches, confirmation included, such as"
                                             " 30m or 1h. Settings that cannot be judged in this time are not tried.",
           "DURATION"),
    Option("max-launches", parsers.count(1), None, "Maximum number of launches of the search.", "N"),
)  # fmt: skip
