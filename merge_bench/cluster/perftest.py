"""UCX's own ``ucx_perftest``: its command lines, its output, and what it logs of lanes and protocols.

Read here and nowhere else: figures are the ``overall_*`` ones (``avg_*`` is the last second alone), rates are MiB/s
although ``MB/s`` is printed, latency tests give half a round trip, a server takes one client and ends.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config.names import UCXX_OVERRIDES
from merge_bench.config.ucx_info import locate
from merge_bench.errors import RunFailed, UsageError
from merge_bench.units import MIB

LATENCY, BANDWIDTH = "lat", "bw"
KINDS = {"tag": "tag", "am": "ucp_am", "stream": "stream"}
WINDOW = 32
RUNS = 3
"""Of each size in one process: whatever takes a core away for a moment spoils one of them, and their median counts."""
COLUMNS = ("iterations", "overall_lat", "overall_bw", "overall_mr")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LANES = re.compile(r"cfg#\d+ (?P<lanes>(?:\w+\([^)]*\)\s*)+)$")
_OLD_LANES = re.compile(r"ep_cfg\[\d+\]: (?P<lanes>(?:\w+\([^)]*\)[;\s]*)+)$")
_VERSION = re.compile(r"(?:UCX\s+INFO\s+)Version (?P<version>\S+)")
_MISSING = re.compile(r"UCX\s+WARN\s+transports? (?P<names>'[^ ]+') (?:is|are) not available")
_TITLE = re.compile(
    r"\| (?P<what>[^|]*? by ucp_(?:tag|am|stream)_send\S*?[^|(]*?)(?P<kind>\([^)]*\))? from (?P<memory>\S+)"
)
_RANGE = re.compile(
    r"\|\s*(?P<first>\d+[KMG]?)(?:\.\.(?P<last>\w+))?\s*\|\s*(?P<protocol>[^|]*?)\s*\|\s*(?P<lanes>[^|]*?)\s*\|"
)


@dataclass(frozen=True)
class Kind:
    """One kind of test: ``tag`` / ``am`` / ``stream``, and what it measures, ``lat`` or ``bw``."""

    kind: str
    measures: str

    @property
    def name(self) -> str:
        """As ``-t`` takes it: ``tag_lat``, ``ucp_am_bw``."""
        return f"{KINDS[self.kind]}_{self.measures}"


@dataclass(frozen=True)
class Figures:
    """One line of output: seconds of an operation (latency: one way), bytes and messages per second."""

    size: int
    iterations: int
    seconds: float
    bandwidth: float
    messages: float


@dataclass(frozen=True)
class Log:
    """What UCX logged: its version, lanes as ``tcp/lo``, transports asked for but absent, protocols by size."""

    version: str | None
    lanes: tuple[str, ...]
    missing: tuple[str, ...]
    protocols: tuple[tuple[int, int | None, str], ...]

    def protocol(self, size: int) -> str | None:
        """The protocol for messages of `size` bytes."""
        rows = ((first, last) for first, last, _ in self.protocols)
        fits = [first <= size and (last is None or size <= last) for first, last in rows]
        return self.protocols[fits.index(True)][2] if any(fits) else None


def find(environ: Mapping[str, str] = os.environ) -> tuple[Path, Path | None, str]:
    """The program of the UCX that the workers load, its library folder (None: the linker finds it), its origin.

    Raises
    ------
    UsageError
        If that UCX has none.
    """
    info = locate(environ.get("MERGE_BENCH_UCX", "auto"), environ)
    program: str | Path | None = info.program.with_name("ucx_perftest")
    if not Path(str(program)).is_file():
        program = shutil.which("ucx_perftest", path=environ.get("PATH")) if info.origin == "system" else None
    if program is None:
        raise UsageError(
            f"there is no ucx_perftest beside {info.program}; install the tools of that UCX (Debian: ucx-utils)"
        )
    return Path(program), info.library_folder, info.origin


def iterations(size: int, measures: str) -> tuple[int, int]:
    """Timed and warm-up iterations of a run: 20,000 and 2,000 up to 8 KiB, then fewer, at least 50 and 5."""
    timed = 20_000 if size <= 8192 else max(50, min(4_000, (128 << 20) // size))
    if measures == LATENCY and size > 8192:
        timed = max(50, timed // 2)
    return timed, max(5, timed // 10)


def batch(test: Kind, sizes: Sequence[int], *, memory: str, count: int | None, error_handling: bool) -> str:
    """The batch file for both sides: `RUNS` lines a size, named by the size; each runs in a context of its own."""
    lines = []
    for size in sizes:
        timed, warm = iterations(size, test.measures)
        timed = count or timed
        words = [str(size), "-t", test.name, "-s", str(size), "-n", str(timed), "-w", str(min(warm, timed))]
        if test.measures == BANDWIDTH:
            words += ["-O", str(WINDOW)]
        if memory != "host":
            words += ["-m", memory]
        if error_handling:
            words.append("-e")
        lines += [" ".join(words)] * RUNS
    return "\n".join(lines) + "\n"


def environment(base: Mapping[str, str], library: Path | None, log: Path) -> dict[str, str]:
    """What a ``ucx_perftest`` process gets: `base`, what UCXX would set, and a log in which UCX tells what it chose."""
    found = {**UCXX_OVERRIDES, **base, "UCX_LOG_LEVEL": "info", "UCX_PROTO_INFO": "y", "UCX_LOG_FILE": str(log)}
    if library is not None:
        found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(library), base.get("LD_LIBRARY_PATH", "")]))
    return found


def has_heading(text: str) -> bool:
    """Whether a client came so far as to print its heading, which it does once it is connected."""
    return any(_is_heading(line) for line in text.splitlines())


def parse(text: str) -> list[Figures]:
    """The figures in a client's output, in its order (``-b … -f -v``), by the names in its heading.

    Raises
    ------
    RunFailed
        If there is no heading, or a line that is no such figure, as when it was cut off.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if _is_heading(line)), None)
    if start is None:
        raise RunFailed(f"ucx_perftest printed no heading that is known here, but {_quoted(text)}")
    names = lines[start].split(",")
    return [_figures(line, names) for line in lines[start + 1 :]]


def parse_all(text: str, sizes: Sequence[int]) -> list[Figures]:
    """The figures of a batch with these `sizes`: of the runs of each the middle one by time.

    Raises
    ------
    RunFailed
        As `parse`, or if a size is missing: a tool that ended early may still end with status 0.
    """
    found = parse(text)
    measured = [each.size for each in found]
    wanted = [size for size in sizes for _ in range(RUNS)]
    if measured != wanted:
        missing = [str(size) for size in sizes if measured.count(size) < RUNS]
        raise RunFailed(
            f"ucx_perftest made {len(measured)} of {len(wanted)} runs"
            + (f"; missing: {', '.join(missing[:5])}{', …' if len(missing) > 5 else ''} bytes" if missing else "")
        )
    return _medians(found)


def _medians(figures: Sequence[Figures]) -> list[Figures]:
    """Of the runs of each size the middle one by time, in the order of the sizes."""
    found: dict[int, list[Figures]] = {}
    for each in figures:
        found.setdefault(each.size, []).append(each)
    return [sorted(runs, key=lambda run: run.seconds)[len(runs) // 2] for runs in found.values()]


def _is_heading(line: str) -> bool:
    return set(COLUMNS) <= set(line.strip().split(","))


def _figures(line: str, names: Sequence[str]) -> Figures:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(names):
        raise RunFailed(f"ucx_perftest printed {_quoted(line)}, which is no line of figures")
    by_name = dict(zip(names, cells, strict=True))
    try:
        size, count = int(cells[0]), int(by_name["iterations"])
        microseconds, mebibytes, messages = (float(by_name[name]) for name in COLUMNS[1:])
    except ValueError:
        raise RunFailed(f"ucx_perftest printed {_quoted(line)}, which is no line of figures") from None
    if count < 1 or not all(0 < value < math.inf for value in (microseconds, messages)):
        raise RunFailed(f"ucx_perftest printed {_quoted(line)}: a figure is not above 0")
    # Printed are three decimals of µs and no decimals of messages: the finer one tells more.
    seconds = microseconds * 1e-6 if microseconds * 1000 > messages else 1 / messages
    rate = size / seconds
    if not abs(rate - mebibytes * MIB) <= 0.01 * MIB + 0.02 * rate:
        raise RunFailed(f"ucx_perftest printed {_quoted(line)}: its rate is not the size over the time, in MiB/s")
    return Figures(size, count, seconds, rate, messages)


def parse_log(text: str, test: Kind) -> Log:
    """Lanes and protocols from what UCX logged; of several wire-up steps the last one counts.

    Bandwidth tests send with the hint ``multi``, latency tests without any: UCX has a table of protocols for each.
    """
    version = _VERSION.search(text)
    lanes: tuple[str, ...] = ()
    missing = [name.strip("'") for found in _MISSING.finditer(text) for name in found["names"].split(",")]
    wanted = "(multi)" if test.measures == BANDWIDTH else ""
    tables: dict[str, list[tuple[int, int | None, str]]] = {}
    current: list[tuple[int, int | None, str]] | None = None
    for line in text.splitlines():
        found = _LANES.search(line.rstrip()) or _OLD_LANES.search(line.rstrip())
        if found:
            words = re.findall(r"[\w.]+/[\w.:]+", found["lanes"])
            lanes = tuple(dict.fromkeys(words))
            continue
        title = _TITLE.search(line)
        if title:
            current = None
            if "reply flag" not in title["what"]:
                current = tables[title["kind"] or ""] = []
            continue
        row = _RANGE.search(line)
        if row and current is not None:
            last = _size(row["last"]) if row["last"] else _size(row["first"])
            current.append((_size(row["first"]) or 0, last, f"{row['protocol'].removeprefix('(?) ')} [{row['lanes']}]"))
    chosen = tables.get(wanted) or tables.get("") or []
    return Log(version["version"] if version else None, lanes, tuple(dict.fromkeys(missing)), tuple(chosen))


def _size(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * _UNITS[match[2]] if match else None


def complaint(text: str) -> str:
    """The last error that UCX printed, without its stamp; empty where there is none."""
    found = re.findall(r"(?:UCX\s+ERROR|Failed|error:)\s*(.+)", text)
    return str(found[-1]).strip()[:300] if found else ""


def _quoted(text: str) -> str:
    shown = " ".join(text.split())
    return f"'{shown[:120]}…'" if len(shown) > 120 else f"'{shown}'"
