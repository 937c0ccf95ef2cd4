"""ucc_perftest, where a site has it: which one, its command line, and what its table and its trace mean.

Its ``-b`` and ``-e`` are always elements that a rank keeps. What it prints as count and size is the same before UCC
1.5, and the whole source vector since (its generator of counts); its bus bandwidth is of the source vector in both.
Times and bandwidths have two decimals, so that 0.00 and 0.01 GB/s are all that short vectors get: bandwidths only tell
which convention a line follows, and records compute them from size and time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.probe.ranks.last_words import OWN_MPIRUN
from merge_bench.probe.ranks.rules import (
    ELEMENT,
    OPERATIONS,
    OPERATIONS_SKIPPED,
    block_of,
    bus_bandwidth,
    loops_of_count,
)

TOOL, INFO = "ucc_perftest", "ucc_info"
UCP, SHARP = "ucc-ucp", "ucc-sharp"
SHARP_ASKED = "(sharp asked for)"
"""Ends the name of a row that was to be carried by SHARP and was not."""
SOURCE_SIDE_SINCE = (1, 5)
HALF_A_DIGIT = (0.005e-6, 0.005e9)
"""What rounding to two decimals may have taken or added: to µs, and to GB/s, as seconds and bytes per second."""
_FLOAT32 = 1e-6  # the tool computes its bandwidths with so few digits
TRACE = {"UCC_COLL_TRACE": "INFO"}
"""Makes rank 0 log which transport layer each collective takes; not while measuring: it is a line an operation."""
ENVIRONMENT = {
    UCP: {"UCC_CLS": "basic", "UCC_CL_BASIC_TLS": "ucp"},
    SHARP: {
        "UCC_CLS": "basic", "UCC_CL_BASIC_TLS": "ucp,sharp", "ENABLE_SHARP_COLL": "1", "SHARP_COLL_ENABLE_SAT": "1",
        "OMPI_MCA_coll_hcoll_enable": "0",  # hcoll would take SHARP's resources for itself
    },
}  # fmt: skip
_ASK_SECONDS = 30.0
_COLUMNS = 8
_HEADING = re.compile(r"^#?\s*Count\s+Size\s+Time, us\s+(Bus )?Bandwidth, GB/s\s*$", re.MULTILINE)
_COLLECTIVE = re.compile(r"^\s*Collective:", re.MULTILINE)
_VERSION = re.compile(r"UCC version=(\d+)\.(\d+)(?:\.(\d+))?")
_LIBMPI = re.compile(r"^\s*libmpi\.so\S* => (/.*) \(0x", re.MULTILINE)
_NOT_THERE = re.compile(r"\btl sharp is not available\b")
_INIT = re.compile(r"coll_init: Reduce_scatter\b[^\n]*?src=\{[^,}]*, (\d+),[^\n]*\{([^{}]*)\}, team_id")


@dataclass(frozen=True)
class Tool:
    """An ucc_perftest and the release of the UCC that it belongs to."""

    path: str
    version: tuple[int, ...]
    libmpi: str | None = None
    """The MPI library that it loads; None where nobody can tell."""

    @property
    def release(self) -> str:
        """``1.4.4``."""
        return ".".join(str(number) for number in self.version)


@dataclass(frozen=True)
class Printed:
    """A line of its table as it stands there; seconds and bytes per second."""

    count: int
    size: int
    seconds: tuple[float, float, float]
    bandwidth: tuple[float, float, float]


@dataclass(frozen=True)
class Chain:
    """Counts that one run covers, each twice the one before, and how often it repeats them."""

    blocks: tuple[int, ...]
    iterations: int
    warm_up: int


def find_tool() -> Tool:
    """The ucc_perftest on PATH.

    Raises
    ------
    UsageError
        If there is none, or nobody tells its release, without which its counts have two meanings.
    """
    path = shutil.which(TOOL)
    if path is None:
        raise UsageError(f"there is no {TOOL} on PATH: {UCP} and {SHARP} need a site's UCC (HPC-X has one)")
    info = Path(path).with_name(INFO)
    asked = str(info) if info.exists() else shutil.which(INFO)
    said = _ask([asked, "-v"]) if asked else ""
    known = version(said)
    if known is None:
        raise UsageError(
            f"{path}: {INFO} -v does not tell its release, and before UCC 1.5 its counts are a rank's part, since then"
            f" the whole vector; put {INFO} of the same UCC beside it"
        )
    return Tool(path, known, libmpi(_ask(["ldd", path])))


def libmpi(text: str) -> str | None:
    """The MPI library among those that ``ldd`` lists."""
    match = _LIBMPI.search(text)
    return match[1] if match else None


def version(text: str) -> tuple[int, ...] | None:
    """The release that ``ucc_info -v`` tells."""
    match = _VERSION.search(text)
    return tuple(int(number) for number in match.groups() if number) if match else None


def chains(counts: Sequence[int], ranks: int, iterations: int | None) -> list[Chain]:
    """Whole vectors of `counts` elements as runs of ucc_perftest, which doubles from a first to a last block."""
    found: list[Chain] = []
    for count in counts:
        block = block_of(count, ranks)
        often = iterations or loops_of_count(count, OPERATIONS)
        before = loops_of_count(count, OPERATIONS_SKIPPED)
        last = found[-1] if found else None
        if last and last.blocks[-1] * 2 == block and (last.iterations, last.warm_up) == (often, before):
            found[-1] = Chain((*last.blocks, block), often, before)
        elif not last or last.blocks[-1] != block:
            found.append(Chain((block,), often, before))
    return found


def command(tool: Tool, chain: Chain, *, trace: bool) -> list[str]:
    """One run; with `trace` each count only once, to see what carries it."""
    often = ("1", "0") if trace else (str(chain.iterations), str(chain.warm_up))
    return [
        tool.path, "-c", "reduce_scatter", "-F", "-d", "float32", "-o", "sum", "-m", "host",
        "-b", str(chain.blocks[0]), "-e", str(chain.blocks[-1]), "-n", often[0], "-w", often[1],
    ]  # fmt: skip


def parse_table(text: str) -> tuple[list[Printed], list[str]]:
    """The lines under the heading, leading ``#`` ignored; and a sentence for each that is not whole."""
    heading = _HEADING.search(text)
    if heading is None:
        return [], ["it printed no table of times and bandwidths"]
    found, damaged = [], []
    for line in text[heading.end() :].splitlines():
        words = line.lstrip("# ").split()
        if not words or not words[0].isdigit():
            continue
        printed = _printed(words)
        if printed is None:
            damaged.append(f"the line of {words[0]} elements is not whole: {line.strip()!r}")
        elif printed.size != printed.count * ELEMENT:
            damaged.append(f"{printed.count} elements are no {printed.size} bytes of float32")
        else:
            found.append(printed)
    return found, damaged


def _printed(words: Sequence[str]) -> Printed | None:
    try:
        count, size, *numbers = int(words[0]), int(words[1]), *(float(word) for word in words[2:])
    except (ValueError, IndexError):
        return None
    if len(words) != _COLUMNS:
        return None
    times, rates = numbers[:3], numbers[3:]
    return Printed(
        count, size, (times[0] / 1e6, times[1] / 1e6, times[2] / 1e6), (rates[0] * 1e9, rates[1] * 1e9, rates[2] * 1e9)
    )


def convention(table: Sequence[Printed], traced: Mapping[int, str], ranks: int, release: tuple[int, ...]) -> int:
    """By what the counts of a `table` are multiplied to get those of the whole source vector: 1, or `ranks`.

    The trace tells, which has source counts; else those lines whose bandwidth goes with one of both alone, even where
    it was rounded; else the `release`. `traced`: as from `carried_by`.
    """
    both = (1, ranks)
    for told in (
        [factor for factor in both if table and all(each.count * factor in traced for each in table)],
        _only([each for each in (_fitting(printed, both, ranks) for printed in table) if len(each) == 1]),
    ):
        if len(told) == 1:
            return told[0]
    return 1 if release >= SOURCE_SIDE_SINCE else ranks


def contradiction(printed: Printed, factor: int, ranks: int) -> str | None:
    """A sentence for a line whose bandwidth is not that of `factor` times its size; None for one that goes with it."""
    if _fitting(printed, (factor,), ranks):
        return None
    rate = " / ".join(f"{each / 1e9:.2f}" for each in printed.bandwidth)
    return (
        f"its bandwidth at {printed.count} elements, {rate} GB/s, is inconsistent with its time and the"
        f" {printed.size * factor} bytes contributed by each of {ranks} ranks"
    )


def _only(votes: Sequence[Sequence[int]]) -> list[int]:
    return sorted({factor for vote in votes for factor in vote})


def _fitting(printed: Printed, factors: Sequence[int], ranks: int) -> list[int]:
    """Those factors with which all three bandwidths of a line go, which are at its mean, least and greatest time."""
    pairs = list(zip(printed.seconds, printed.bandwidth, strict=True))
    return [factor for factor in factors if all(_goes(printed.size * factor, ranks, *pair) for pair in pairs)]


def _goes(size: int, ranks: int, seconds: float, rate: float) -> bool:
    of_time, of_rate = HALF_A_DIGIT
    least = bus_bandwidth(size, seconds + of_time, ranks) or 0.0
    greatest = bus_bandwidth(size, seconds - of_time, ranks) or float("inf")
    return least * (1 - _FLOAT32) <= rate + of_rate and rate - of_rate <= greatest * (1 + _FLOAT32)


def carried_by(text: str) -> dict[int, str]:
    """Which transport layers carried reduce-scatter, by source count, as the trace tells: ``TL_SHARP``."""
    return {int(count): layers.strip() for count, layers in _INIT.findall(text)}


def why_no_sharp(text: str) -> str:
    """Why SHARP carried nothing, in UCC's words if it said any."""
    match = _NOT_THERE.search(text)
    return f"UCC says “{match[0]}”" if match else "UCC does not say why"


def check_one_job(text: str, ranks: int) -> None:
    """Whether the ranks found each other.

    Raises
    ------
    LaunchFailed
        If each ran by itself: ucc_perftest is linked with another MPI than the mpirun that started it.
    """
    if len(_COLLECTIVE.findall(text)) > 1:
        raise LaunchFailed(f"{TOOL} ran {ranks} times by itself instead of as {ranks} ranks; {OWN_MPIRUN}")


def _ask(argv: Sequence[str]) -> str:
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_ASK_SECONDS, check=False,
            errors="replace", env=dict(os.environ),
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
