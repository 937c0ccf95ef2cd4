"""Command lines and output of UCX's ``ucx_perftest``; the lanes and protocols in UCX's log (``UCX_LOG_LEVEL=info``).

What its manual omits: ``overall_*`` columns cover the whole run, ``avg_*`` columns only its last second. Rates are in
MiB/s although the heading says ``MB/s``. Latency tests print half a round trip. A server takes one client and then
ends.

In the log, UCX ≥ 1.15 writes a line for each configuration of an endpoint and each place of its peer::

    … UCX  INFO    ucp_context_0 intra-node cfg#1 tag(sysv/memory cma/memory)

Several lines for one place are steps of connecting: the last one counts. UCX ≤ 1.14 writes ``ep_cfg[1]: tag(…)``
without the place.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config.ucx_info import find_ucx_info
from merge_bench.config.variables import UCXX_OVERRIDES
from merge_bench.errors import RunFailed, UsageError
from merge_bench.units import MIB, parse_bytes

LATENCY, BANDWIDTH = "lat", "bw"
KINDS = {"tag": "tag", "am": "ucp_am", "stream": "stream"}
WINDOW = 32
RUNS = 3
"""Runs of each size in one process. The median run counts, so that a short disturbance of a core does no harm."""
COLUMNS = ("iterations", "overall_lat", "overall_bw", "overall_mr")
SELF, UNKNOWN = "self", "unknown"
# Not the titles of UCX_PROTO_INFO's tables.
_PLACE_LANES = re.compile(r"\b(self|intra-node|inter-node) cfg#\d+\s+(\w+\(.*)$", re.MULTILINE)
_OLD_LANES = re.compile(r"\bep_cfg\[\d+\]:\s*(\S.*)$", re.MULTILINE)
_LANES = re.compile(r"\b\w+\(([^)]*)\)")
_VERSION = re.compile(r"UCX\s+INFO\s+Version (\S+) \(loaded")
_MISSING = re.compile(r"UCX\s+WARN\s+transports? (?P<names>'[^ ]+') (?:is|are) not available")
_TITLE = re.compile(
    r"\| (?P<what>[^|]*? by ucp_(?:tag|am|stream)_send\S*?[^|(]*?)(?P<kind>\([^)]*\))? from (?P<memory>\S+)"
)
_RANGE = re.compile(
    r"\|\s*(?P<first>\d+[KMG]?)(?:\.\.(?P<last>\d+[KMG]?|inf))?\s*\|\s*(?P<protocol>[^|]*?)\s*\|\s*(?P<lanes>[^|]*?)\s*\|"
)


@dataclass(frozen=True)
class PerftestType:
    """One of ucx_perftest's tests: the kind of its messages, and whether it measures latency or bandwidth.

    `kind`: ``tag``, ``am`` or ``stream``; `measures`: ``lat`` or ``bw``.
    """

    kind: str
    measures: str

    @property
    def test_name(self) -> str:
        """The name of the test for the option ``-t``, such as ``tag_lat`` or ``ucp_am_bw``."""
        return f"{KINDS[self.kind]}_{self.measures}"


@dataclass(frozen=True)
class PerftestFigures:
    """The figures in one line of ucx_perftest's output: seconds per operation, bytes and messages per second.

    `seconds`: of a latency test for one direction.
    """

    size: int
    iterations: int
    seconds: float
    bandwidth: float
    messages: float


@dataclass(frozen=True)
class UcxLogContents:
    """The facts in a process's UCX log: version, lanes (``tcp/lo``), missing transports of ``UCX_TLS``, and protocols.

    `protocols`: first size, last size (None: no limit) and name of each protocol.
    """

    version: str | None
    lanes: tuple[str, ...]
    missing: tuple[str, ...]
    protocols: tuple[tuple[int, int | None, str], ...]

    def protocol_for_message(self, message_bytes: int) -> str | None:
        """Return the name of UCX's protocol for messages of `message_bytes` bytes; None if it is unknown."""
        fits = (
            name
            for first, last, name in self.protocols
            if first <= message_bytes and (last is None or message_bytes <= last)
        )
        return next(fits, None)


def find_perftest_program(environ: Mapping[str, str] = os.environ) -> tuple[Path, Path | None, str]:
    """Return the path of the ``ucx_perftest`` of the workers' UCX, that UCX's library folder, and its origin.

    The library folder is None if the dynamic linker finds the libraries. Raises UsageError if there is no
    ``ucx_perftest``.
    """
    info = find_ucx_info(environ.get("MERGE_BENCH_UCX", "auto"), environ)
    program: str | Path | None = info.program.with_name("ucx_perftest")
    if not Path(str(program)).is_file():
        program = shutil.which("ucx_perftest", path=environ.get("PATH")) if info.origin == "system" else None
    if program is None:
        raise UsageError(
            f"ucx_perftest is not in the folder of {info.program}; install the tools of this UCX (Debian: ucx-utils)"
        )
    return Path(program), info.library_folder, info.origin


def perftest_iteration_counts(message_bytes: int, measures: str) -> tuple[int, int]:
    """Return the numbers of timed and of warm-up iterations of a test with messages of `message_bytes` bytes.

    They are 20,000 and 2,000 up to 8 KiB, then fewer, at least 50 and 5.
    """
    timed = 20_000 if message_bytes <= 8192 else max(50, min(4_000, (128 << 20) // message_bytes))
    if measures == LATENCY and message_bytes > 8192:
        timed = max(50, timed // 2)
    return timed, max(5, timed // 10)


def perftest_batch_file_text(
    test: PerftestType, message_sizes: Sequence[int], *, memory: str, iterations: int | None, error_handling: bool
) -> str:
    """Return the text of ucx_perftest's batch file: for each message size three lines, which are named by the size.

    `memory`: ``host`` or ``cuda``; `iterations`: timed iterations, None for `perftest_iteration_counts`.
    """
    window = f" -O {WINDOW}" if test.measures == BANDWIDTH else ""
    more = window + (f" -m {memory}" if memory != "host" else "") + (" -e" if error_handling else "")
    lines = []
    for size in message_sizes:
        timed, warm = perftest_iteration_counts(size, test.measures)
        timed = iterations or timed
        lines += [f"{size} -t {test.test_name} -s {size} -n {timed} -w {min(warm, timed)}{more}"] * RUNS
    return "\n".join(lines) + "\n"


def perftest_environment(
    worker_environment: Mapping[str, str], library_folder: Path | None, log_file: Path
) -> dict[str, str]:
    """Return the environment variables of a ``ucx_perftest`` that logs the lanes and protocols of UCX in `log_file`.

    `worker_environment`: the variables of the worker; `library_folder`: the folder of UCX's libraries.
    """
    variables = {
        **UCXX_OVERRIDES,
        **worker_environment,
        "UCX_LOG_LEVEL": "info",
        "UCX_PROTO_INFO": "y",
        "UCX_LOG_FILE": str(log_file),
    }
    if library_folder is not None:
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(
            filter(None, [str(library_folder), worker_environment.get("LD_LIBRARY_PATH", "")])
        )
    return variables


def has_client_heading(client_output: str) -> bool:
    """Return whether a client's output has a heading, which means that the client was connected to its server."""
    return any(_is_heading_line(line) for line in client_output.splitlines())


def parse_client_output(text: str) -> list[PerftestFigures]:
    """Return the figures of each line in a client's output (``-b … -f -v``); raises RunFailed if it is damaged."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if _is_heading_line(line)), None)
    if start is None:
        raise RunFailed(f"ucx_perftest printed an unknown heading: {_quoted_excerpt(text)}")
    names = lines[start].split(",")
    return [_parse_figures_line(line, names) for line in lines[start + 1 :]]


def parse_median_figures(client_output: str, message_sizes: Sequence[int]) -> list[PerftestFigures]:
    """Return for each message size of a batch the figures of the run with the median time, from a client's output.

    Raises RunFailed if the output is damaged, or if runs are missing: the tool may end early and still have status 0.
    """
    figures = parse_client_output(client_output)
    measured = [each.size for each in figures]
    wanted = [size for size in message_sizes for _ in range(RUNS)]
    if measured != wanted:
        missing = [str(size) for size in message_sizes if measured.count(size) < RUNS]
        named = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        lacking = f"; missing sizes: {named} bytes" if missing else ""
        raise RunFailed(f"ucx_perftest finished {len(measured)} of {len(wanted)} runs{lacking}")
    runs = (figures[at : at + RUNS] for at in range(0, len(figures), RUNS))
    return [sorted(each, key=lambda run: run.seconds)[RUNS // 2] for each in runs]


def _is_heading_line(line: str) -> bool:
    return set(COLUMNS) <= set(line.strip().split(","))


def _parse_figures_line(line: str, column_names: Sequence[str]) -> PerftestFigures:
    cells = [cell.strip() for cell in line.split(",")]
    try:
        by_name = dict(zip(column_names, cells, strict=True))
        size, count = int(cells[0]), int(by_name["iterations"])
        microseconds, mebibytes, messages = (float(by_name[name]) for name in COLUMNS[1:])
    except ValueError:
        raise RunFailed(f"ucx_perftest printed {_quoted_excerpt(line)}; expected a line of numbers") from None
    if count < 1 or not all(0 < value < math.inf for value in (microseconds, messages)):
        raise RunFailed(
            f"ucx_perftest printed {_quoted_excerpt(line)}; expected a count, a time and a message rate, each greater"
            " than 0"
        )
    # It prints µs with three decimals and messages per second with none: take the one with more digits.
    seconds = microseconds * 1e-6 if microseconds * 1000 > messages else 1 / messages
    rate = size / seconds
    if not abs(rate - mebibytes * MIB) <= 0.01 * MIB + 0.02 * rate:
        raise RunFailed(
            f"ucx_perftest printed {_quoted_excerpt(line)}, which is inconsistent: its rate in MiB/s is not size ÷ time"
        )
    return PerftestFigures(size, count, seconds, rate, messages)


def parse_ucx_log(log_text: str, test: PerftestType) -> UcxLogContents:
    """Return the version, lanes and protocols in the text of UCX's log.

    UCX has a table of protocols for each kind of send: bandwidth tests send with the hint ``multi``, latency tests
    without one.
    """
    missing = [name.strip("'") for found in _MISSING.finditer(log_text) for name in found["names"].split(",")]
    tables: dict[str, list[tuple[int, int | None, str]]] = {}
    current: list[tuple[int, int | None, str]] = []
    for line in log_text.splitlines():
        if title := _TITLE.search(line):
            current = []
            if "reply flag" not in title["what"]:
                tables[title["kind"] or ""] = current
        elif row := _RANGE.search(line):
            last = None if row["last"] == "inf" else parse_bytes(row["last"] or row["first"])
            name = f"{row['protocol'].removeprefix('(?) ')} [{row['lanes']}]"
            current.append((parse_bytes(row["first"]), last, name))
    chosen = tables.get("(multi)" if test.measures == BANDWIDTH else "") or tables.get("", [])
    lanes = parse_lanes_to_peers(log_text)
    return UcxLogContents(logged_ucx_version(log_text), lanes, tuple(dict.fromkeys(missing)), tuple(chosen))


def parse_lanes_by_place(log_text: str) -> dict[str, tuple[str, ...]]:
    """Return the lanes (``tcp/eth0``) in UCX's log by the place of the peer, such as ``intra-node``, in UCX's order.

    Empty if the log has none.
    """
    by_place = {place: _parse_lane_list(rest) for place, rest in _PLACE_LANES.findall(log_text)}
    if not by_place:
        for rest in _OLD_LANES.findall(log_text):
            selected = _parse_lane_list(rest)
            if not all(lane.startswith("self/") for lane in selected):
                by_place[UNKNOWN] = selected
    return by_place


def parse_lanes_to_peers(log_text: str) -> tuple[str, ...]:
    """Return the lanes in UCX's log to all other processes, on this host and on others, each once."""
    others = (lane for place, selected in parse_lanes_by_place(log_text).items() if place != SELF for lane in selected)
    return tuple(dict.fromkeys(others))


def logged_ucx_version(log_text: str) -> str | None:
    match = _VERSION.search(log_text)
    return match[1] if match else None


def _parse_lane_list(logged_lanes: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lane for words in _LANES.findall(logged_lanes) for lane in words.split()))


def last_ucx_error(log_text: str) -> str:
    """Return the last error in UCX's output, without its time stamp; empty if there is none."""
    errors = re.findall(r"(?:UCX\s+ERROR|Failed|error:)\s*(.+)", log_text)
    return str(errors[-1]).strip()[:300] if errors else ""


def _quoted_excerpt(text: str) -> str:
    shown = " ".join(text.split())
    return f"'{shown[:120]}…'" if len(shown) > 120 else f"'{shown}'"
