"""ucc_perftest, where a site has it: which one, its command line, and what its table and its trace mean.

Its ``-b`` and ``-e`` are always elements that a rank keeps. What it prints as count and size is the same before UCC
1.5, and the whole source vector since (its generator of counts); its bus bandwidth is of the source vector in both.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.probe.mpi_rules import ELEMENT, OPERATIONS, OPERATIONS_SKIPPED, block_of, loops_of_count

TOOL, INFO = "ucc_perftest", "ucc_info"
UCP, SHARP = "ucc-ucp", "ucc-sharp"
SOURCE_SIDE_SINCE = (1, 5)
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
_INIT = re.compile(r"coll_init: Reduce_scatter\b[^\n]*?src=\{[^,}]*, (\d+),[^\n]*\{([^{}]*)\}, team_id")


@dataclass(frozen=True)
class Tool:
    """An ucc_perftest and the release of the UCC that it belongs to."""

    path: str
    version: tuple[int, ...]

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
    return Tool(path, known)


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


def parse_table(text: str) -> list[Printed]:
    """The lines under the heading; leading ``#`` are ignored.

    Raises
    ------
    ValueError
        If there is no heading, or a line under it is not whole.
    """
    heading = _HEADING.search(text)
    if heading is None:
        raise ValueError("it printed no table of times and bandwidths")
    found = []
    for line in text[heading.end() :].splitlines():
        words = line.lstrip("# ").split()
        if not words or not words[0].isdigit():
            continue
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) != _COLUMNS:
            raise ValueError(f"the line of {words[0]} elements is not whole: {line.strip()!r}")
        times, rates = numbers[2:5], numbers[5:8]
        found.append(
            Printed(
                int(words[0]), int(words[1]), (times[0] / 1e6, times[1] / 1e6, times[2] / 1e6),
                (rates[0] * 1e9, rates[1] * 1e9, rates[2] * 1e9),
            )
        )  # fmt: skip
    return found


def source_count(printed: Printed, ranks: int, release: tuple[int, ...]) -> int:
    """Elements of the whole source vector that a printed line is about.

    The line's own bandwidth must agree: it is of the source vector, (S ÷ t) × (N − 1) ÷ N.

    Raises
    ------
    ValueError
        If it does not.
    """
    factor = 1 if release >= SOURCE_SIDE_SINCE else ranks
    average, rate = printed.seconds[0], printed.bandwidth[0]
    if printed.size != printed.count * ELEMENT:
        raise ValueError(f"{printed.count} elements are no {printed.size} bytes of float32")
    implied = rate * average * ranks / (ranks - 1) / printed.size
    if rate > 0 and not 0.75 < implied / factor < 1.4:  # rates have two decimals; ranks are at least 2
        raise ValueError(
            f"its bandwidth at {printed.count} elements is that of {implied:.2f} times the size that it prints, and"
            f" {factor} is expected of {ranks} ranks"
        )
    return printed.count * factor


def carried_by(text: str) -> dict[int, str]:
    """Which transport layers carried reduce-scatter, by source count, as the trace tells: ``TL_SHARP``."""
    return {int(count): layers.strip() for count, layers in _INIT.findall(text)}


def check_one_job(text: str, ranks: int) -> None:
    """Whether the ranks found each other.

    Raises
    ------
    LaunchFailed
        If each ran by itself: ucc_perftest is linked with another MPI than the mpirun that started it.
    """
    if len(_COLLECTIVE.findall(text)) > 1:
        raise LaunchFailed(f"{TOOL} ran {ranks} times by itself instead of as {ranks} ranks: it needs its own mpirun")


def _ask(argv: Sequence[str]) -> str:
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_ASK_SECONDS, check=False,
            errors="replace", env=dict(os.environ),
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
