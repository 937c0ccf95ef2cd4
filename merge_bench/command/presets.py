"""Presets: where programs that many people measure with print their results.

Lines may have a rank before them, as ``mpirun --tag-output`` and ``srun --label`` print it. A preset has its metrics
by the words of the command, because programs of one family print bandwidths or latencies; the first that fits counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.records.recorded_plan import CommandMetric

_RANK = r"^(?:.*\[\d+,\d+\]<\w+>:|\s*\d+:)?[ \t]*"
_NUMBER = r"(\d[\d.]*(?:e[-+]?\d+)?)"
_WITH_UNIT = r"(?P<value>\d[\d.]*) (?P<unit>[kMGT]?i?B/s)"


@dataclass(frozen=True)
class Preset:
    """A family of programs. `variants`: the metrics, by a regular expression for the command that prints them."""

    name: str
    about: str
    variants: Sequence[tuple[str, Sequence[CommandMetric]]]

    def metrics_of(self, command_line: str) -> list[CommandMetric]:
        """The metrics that this command prints, the main one first."""
        return list(next(metrics for words, metrics in self.variants if re.search(words, command_line)))


def _metric(name: str, unit: str, better: str, expression: str, pick: str = "last") -> CommandMetric:
    return CommandMetric(name=name, unit=unit, better=better, source=f"re:{expression}", pick=pick)


_UCX_LATENCY = _metric("latency", "us", "less", rf"^Final: +\d+ +\S+ +\S+ +{_NUMBER}")
_UCX_BANDWIDTH = _metric("bandwidth", "MB/s", "more", rf"^Final: +\d+(?: +\S+){{4}} +{_NUMBER}")
_UCX_MESSAGES = _metric("messages", "msg/s", "more", rf"^Final: +\d+(?: +\S+){{6}} +{_NUMBER}")
_PERFTEST_RATE = rf"^[ \t]*\d+[ \t]+\d+[ \t]+(?:[\d.]+[ \t]+)?{_NUMBER}[ \t]+[\d.]+[ \t]*$"
_MERGE_WALL = r"^Wall-clock +\| (?P<value>\d[\d.]*) (?P<unit>m?s|us|min)"

PRESETS = (
    Preset(
        "osu",
        "OSU micro-benchmarks: the value of the largest size",
        (
            (r"osu_\w*barrier", (_metric("latency", "us", "less", rf"{_RANK}{_NUMBER}"),)),
            (r"osu_\w*(bw|bw_mr)\b", (_metric("bandwidth", "MB/s", "more", rf"{_RANK}\d+[ \t]+{_NUMBER}"),)),
            ("", (_metric("latency", "us", "less", rf"{_RANK}\d+[ \t]+{_NUMBER}"),)),
        ),
    ),
    Preset(
        "nccl-tests",
        "nccl-tests: the average bus bandwidth",
        (("", (_metric("busbw", "GB/s", "more", rf"# Avg bus bandwidth\s*:\s*{_NUMBER}"),)),),
    ),
    Preset(
        "ucx_perftest",
        "ucx_perftest: the final line",
        (
            (r"_lat\b", (_UCX_LATENCY, _UCX_MESSAGES)),  # the bandwidth of short messages is printed as 0.00
            ("", (_UCX_BANDWIDTH, _UCX_LATENCY, _UCX_MESSAGES)),
        ),
    ),
    Preset(
        "ib_write_bw",
        "perftest's ib_write_bw, ib_read_bw, ib_send_bw and the like: the average of the largest size",
        (
            (r"_lat\b", (_metric("latency", "us", "less", rf"^[ \t]*\d+(?:[ \t]+[\d.]+){{3}}[ \t]+{_NUMBER}"),)),
            (r"--report_gbits", (_metric("bandwidth", "Gb/s", "more", _PERFTEST_RATE),)),
            ("", (_metric("bandwidth", "MB/s", "more", _PERFTEST_RATE),)),
        ),
    ),
    Preset(
        "mpi4py.bench",
        "python -m mpi4py.bench pingpong (the largest size) or ringtest",
        (
            (r"\bringtest\b", (_metric("time", "s", "less", rf"time for \d+ loops = {_NUMBER} seconds"),)),
            ("", (_metric("bandwidth", "MB/s", "more", rf"{_RANK}\d+[ \t]+{_NUMBER}(?:[ \t]+\||[ \t]*$)"),)),
        ),
    ),
    Preset(
        "cudf_merge",
        "ucxx.benchmarks.cudf_merge: throughput, bandwidth and wall-clock of all iterations",
        (
            (
                "",
                (
                    _metric("throughput", "GiB/s", "more", rf"^Throughput(?: / GPU)? +\| {_WITH_UNIT}$"),
                    _metric("bandwidth", "GiB/s", "more", rf"^(?:Avg )?Bandwidth(?: / GPU)? +\| {_WITH_UNIT}$"),
                    _metric("merge_time", "s", "less", rf"{_MERGE_WALL}$"),
                ),
            ),
        ),
    ),
    Preset(
        "bench_shuffle",
        "rapidsmpf's bench_shuffle: the means of all runs",
        (
            (
                "",
                (
                    _metric("throughput", "GiB/s", "more", rf"means?: .*global throughput: {_WITH_UNIT}"),
                    _metric("shuffle_time", "s", "less", r"means?: (?P<value>\d[\d.]*) (?P<unit>[mun]?s|sec|min)\b"),
                ),
            ),
        ),
    ),
)


def preset_names() -> list[str]:
    """The names of all presets."""
    return [preset.name for preset in PRESETS]


def find_preset(name: str) -> Preset | None:
    """The preset of this name, with or without capitals; None if there is none."""
    return next((preset for preset in PRESETS if preset.name == name.strip().lower()), None)
