"""ucc_perftest, if a site has it: where it is, its command line, its table and its trace, and records of its lines.

``-b`` and ``-e`` are always the elements that a rank keeps. Before UCC 1.5 the printed count and size are those of a
rank's part, since 1.5 those of the whole source vector; the bus bandwidth is always that of the source vector. Times
and bandwidths are rounded, usually to two decimals, so bandwidths of short vectors are 0.00 or 0.01 GB/s. Bandwidths
are therefore only used to find out which count_factor a line follows; the records compute them from size and time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merge_bench.cluster.ucx_perftest import logged_ucx_version, parse_lanes_to_peers
from merge_bench.errors import LaunchFailed, UsageError, WarningMessage
from merge_bench.probe.ranks import mpirun, osu_rules
from merge_bench.probe.ranks.mpirun import OWN_MPIRUN, program_output, program_output_or_none
from merge_bench.units import format_count

if TYPE_CHECKING:
    from merge_bench.probe.ranks.launch import RankSession
    from merge_bench.records.schema import ProbeLine

TOOL, INFO = "ucc_perftest", "ucc_info"
UCP, SHARP = "ucc-ucp", "ucc-sharp"
SHARP_ASKED = "(sharp asked for)"
"""End of the name of a row for which SHARP was requested but not used."""
SOURCE_SIDE_SINCE = (1, 5)
_FLOAT32 = 1e-6  # relative error: the tool computes bandwidths as float32
TRACE = {"UCC_COLL_TRACE": "INFO"}
"""Makes rank 0 log the transport layer of each collective; not while measuring, because it logs every operation."""
ENVIRONMENT = {
    UCP: {"UCC_CLS": "basic", "UCC_CL_BASIC_TLS": "ucp"},
    SHARP: {
        "UCC_CLS": "basic",
        "UCC_CL_BASIC_TLS": "ucp,sharp",
        "ENABLE_SHARP_COLL": "1",
        "SHARP_COLL_ENABLE_SAT": "1",
        "OMPI_MCA_coll_hcoll_enable": "0",  # hcoll would use up SHARP's resources
    },
}
_ROW = re.compile(r"#?\s*(\d+)\s+(\d+)" + r"\s+(\d+(?:\.\d+)?)" * 6)
_HEADING = re.compile(r"^#?\s*Count\s+Size\s+Time, us\s+(Bus )?Bandwidth, GB/s\s*$", re.MULTILINE)
_COLLECTIVE = re.compile(r"^\s*Collective:", re.MULTILINE)
_VERSION = re.compile(r"UCC version=(\d+)\.(\d+)(?:\.(\d+))?")
_LIBMPI = re.compile(r"^\s*libmpi\.so\S* => (/.*) \(0x", re.MULTILINE)
_NOT_THERE = re.compile(r"\btl sharp is not available\b")
_INIT = re.compile(r"coll_init: Reduce_scatter\b[^\n]*?src=\{[^,}]*, (\d+),[^\n]*\{([^{}]*)\}, team_id")
SILENCE_FACTOR = 4.0
"""ucc_perftest prints nothing while it repeats an operation."""
NO_SHARP = "sharp-missing"
"""Code of a warning."""
_GET_SHARP = (
    "use a UCC built with SHARP (HPC-X includes one) and a network whose switches support SHARP; set"
    " UCC_LOG_LEVEL=debug to make ucc_perftest print what is missing"
)
_SEGMENTATION_FAULT = "killed by signal 11"
_TWO_UCX = (
    "; if UCC and MPI were built with different releases of UCX, set OMPI_MCA_pml=ob1 and OMPI_MCA_osc=^ucx to keep MPI"
    " from loading UCX"
)


@dataclass(frozen=True)
class UccPerftestTool:
    """An installed ucc_perftest: its path, its UCC's version, and the path of the libmpi it loads (None if unknown)."""

    path: str
    version: tuple[int, ...]
    libmpi: str | None = None


@dataclass(frozen=True)
class UccPerftestRow:
    """A row of ucc_perftest's table: average, least and greatest seconds, and their bandwidths in bytes per second.

    `decimals`: how many decimals the table has for times in µs, and for bandwidths in GB/s.
    """

    count: int
    size: int
    seconds: tuple[float, ...]
    bandwidth: tuple[float, ...]
    decimals: tuple[int, int]


@dataclass(frozen=True)
class UccPerftestRun:
    """One run of ucc_perftest over vectors whose number of elements doubles from row to row.

    `blocks`: elements that one rank keeps, each number twice the one before.
    """

    blocks: tuple[int, ...]
    iterations: int
    warm_up: int


def find_ucc_perftest() -> UccPerftestTool:
    """Return the ucc_perftest on PATH, with the version of its UCC.

    Raises UsageError if there is none, or its version is unknown: UCC 1.5 changed the vector whose elements are
    counted.
    """
    path = shutil.which(TOOL)
    if path is None:
        raise UsageError(f"{TOOL} is not on PATH; install UCC, or omit {UCP} and {SHARP} from --algorithms")
    beside = Path(path).with_name(INFO)
    info = str(beside) if beside.exists() else INFO
    release, problem = None, "printed no version"
    try:
        release = parse_ucc_version(program_output([info, "-v"]))
    except subprocess.CalledProcessError as error:
        problem = f"failed with status {error.returncode}"
    except subprocess.TimeoutExpired as error:
        problem = f"took longer than {error.timeout:g} s"
    except OSError as error:
        problem = f"cannot be started ({error.strerror})"
    if release is None:
        unknown = f"the UCC version of {path} is unknown: `{info} -v` {problem}"
        raise UsageError(f"{unknown}; repair this installation of UCC")
    return UccPerftestTool(path, release, parse_libmpi_path(program_output_or_none(["ldd", path]) or ""))


def parse_libmpi_path(ldd_output: str) -> str | None:
    """Return the path of libmpi in the output of ldd; None if there is none."""
    match = _LIBMPI.search(ldd_output)
    return match and match[1]


def parse_ucc_version(ucc_info_output: str) -> tuple[int, ...] | None:
    """Return the version of UCC in the output of ucc_info; None if there is none."""
    match = _VERSION.search(ucc_info_output)
    return match and tuple(int(number) for number in match.groups() if number)


def plan_ucc_perftest_runs(counts: Sequence[int], ranks: int, iterations: int | None) -> list[UccPerftestRun]:
    """Return the runs of ucc_perftest that cover vectors of `counts` elements; within a run the counts double."""
    runs: list[UccPerftestRun] = []
    for count in counts:
        block = osu_rules.reduced_block_elements(count, ranks)
        often = iterations or osu_rules.collective_iterations_for_count(count, osu_rules.OPERATIONS)
        before = osu_rules.collective_iterations_for_count(count, osu_rules.OPERATIONS_SKIPPED)
        last = runs[-1] if runs else None
        if last and last.blocks[-1] * 2 == block and (last.iterations, last.warm_up) == (often, before):
            runs[-1] = UccPerftestRun((*last.blocks, block), often, before)
        elif not last or last.blocks[-1] != block:
            runs.append(UccPerftestRun((block,), often, before))
    return runs


def ucc_perftest_command(tool: UccPerftestTool, run: UccPerftestRun, *, trace: bool) -> list[str]:
    """Return the command of one run of ucc_perftest.

    `trace`: whether each count is run only once, to log its transport.
    """
    count, warm_up = (1, 0) if trace else (run.iterations, run.warm_up)
    blocks = f"-b {run.blocks[0]} -e {run.blocks[-1]} -n {count} -w {warm_up}"
    return [tool.path, *f"-c reduce_scatter -F -d float32 -o sum -m host {blocks}".split()]


def parse_ucc_perftest_table(output: str) -> tuple[list[UccPerftestRow], list[str]]:
    """Return the rows of the table in ucc_perftest's output, and a message for each damaged line."""
    heading = _HEADING.search(output)
    if heading is None:
        return [], ["its output has no table of times and bandwidths"]
    rows, damaged = [], []
    for line in output[heading.end() :].splitlines():
        row = _ROW.fullmatch(line.strip())
        words = line.lstrip("# ").split()
        if row is not None and (decimals := _decimal_places(words[2:])) is not None:
            count, size, numbers = int(words[0]), int(words[1]), [float(word) for word in words[2:]]
            if size == count * osu_rules.ELEMENT:
                seconds, rates = (each / 1e6 for each in numbers[:3]), (each * 1e9 for each in numbers[3:])
                rows.append(UccPerftestRow(count, size, tuple(seconds), tuple(rates), decimals))
            else:
                damaged.append(f"its line for {count} elements has a wrong size: {size} bytes")
        elif words and words[0].isdigit():
            damaged.append(f"its line for {words[0]} elements is incomplete: {line.strip()!r}")
    return rows, damaged


def _decimal_places(words: Sequence[str]) -> tuple[int, int] | None:
    """Return how many decimal places a table line's times and bandwidths have; None if the line is cut off."""
    decimals = [len(word.partition(".")[2]) for word in words]
    return (decimals[0], decimals[3]) if len(set(decimals[:3])) == len(set(decimals[3:])) == 1 else None


def whole_vector_count_factor(
    table: Sequence[UccPerftestRow], traced_layers: Mapping[int, str], ranks: int, release: tuple[int, ...]
) -> int:
    """Return the factor, 1 or `ranks`, from the counts in ucc_perftest's table to those of the whole source vector.

    The factor follows from the trace, which has source counts; else from rows whose bandwidth fits only one factor;
    else from the `release` of UCC. `traced_layers`: the result of `parse_transport_layers`.
    """
    both = (1, ranks)
    of_trace = {factor for factor in both if table and all(each.count * factor in traced_layers for each in table)}
    fitting = [[factor for factor in both if _bandwidth_fits_factor(each, factor, ranks)] for each in table]
    for factors_seen in (of_trace, {factors[0] for factors in fitting if len(factors) == 1}):
        if len(factors_seen) == 1:
            return factors_seen.pop()
    return 1 if release >= SOURCE_SIDE_SINCE else ranks


def bandwidth_contradiction_text(printed_row: UccPerftestRow, factor: int, ranks: int) -> str | None:
    """Return how a printed row's bandwidth contradicts its time and `factor` times its size; None if they fit."""
    if _bandwidth_fits_factor(printed_row, factor, ranks):
        return None
    rate = " / ".join(f"{each / 1e9:.{printed_row.decimals[1]}f}" for each in printed_row.bandwidth)
    return (
        f"its bandwidth for {printed_row.count} elements ({rate} GB/s) does not match its time and the"
        f" {printed_row.size * factor} bytes from each of {ranks} ranks"
    )


def _bandwidth_fits_factor(printed_row: UccPerftestRow, factor: int, ranks: int) -> bool:
    """Return whether the bandwidths of a printed row fit its three times and `factor` times its size."""
    size = printed_row.size * factor
    half_a_digit = [0.5 * 10.0**-each for each in printed_row.decimals]  # the largest error by rounding
    of_time, of_rate = half_a_digit[0] * 1e-6, half_a_digit[1] * 1e9
    for seconds, rate in zip(printed_row.seconds, printed_row.bandwidth, strict=True):
        least = osu_rules.reduce_scatter_bus_bandwidth(size, seconds + of_time, ranks) or 0.0
        greatest = osu_rules.reduce_scatter_bus_bandwidth(size, seconds - of_time, ranks) or float("inf")
        if least * (1 - _FLOAT32) > rate + of_rate or rate - of_rate > greatest * (1 + _FLOAT32):
            return False
    return True


def parse_transport_layers(trace: str) -> dict[int, str]:
    """Return the transport layer of each reduce-scatter in UCC's trace (``TL_SHARP``), by count of source elements."""
    return {int(count): layers.strip() for count, layers in _INIT.findall(trace)}


def sharp_not_used_reason(ucc_output: str) -> str:
    """Return why UCC did not use SHARP, as text: the reason in `ucc_output`, or that UCC reports none."""
    match = _NOT_THERE.search(ucc_output)
    return f"UCC reports “{match[0]}”" if match else "UCC reports no reason"


def check_ranks_are_one_job(output: str, ranks: int) -> None:
    """Raise LaunchFailed if ucc_perftest ran as one job per rank, because it is linked with another MPI."""
    if len(_COLLECTIVE.findall(output)) > 1:
        raise LaunchFailed(f"{TOOL} ran as {ranks} separate jobs instead of one job of {ranks} ranks; {OWN_MPIRUN}")


def measure_with_ucc_perftest(
    session: RankSession, algorithm: str, counts: Sequence[int], iterations: int | None
) -> list[str]:
    """Measure an algorithm at every count with ucc_perftest, and record each row that passes the checks.

    Returns a message for each row that does not, and for missing counts. Raises LaunchFailed if the tool cannot be
    started, or ends early; the rows before that are recorded.
    """
    tool, ranks = find_ucc_perftest(), session.plan.workers
    problems, warned = [], False
    for run in plan_ucc_perftest_runs(counts, ranks, iterations):
        trace: list[str] = []
        printed: list[str] = []
        _run_ucc_perftest(session, algorithm, ucc_perftest_command(tool, run, trace=True), TRACE, trace)
        traced = "\n".join(trace)
        try:
            _run_ucc_perftest(session, algorithm, ucc_perftest_command(tool, run, trace=False), {}, printed)
        finally:
            lines, wrong = _make_record_lines(session, algorithm, tool, run, traced, "\n".join(printed))
            for line in lines:
                session.writer.write(line)
        problems += wrong
        if not warned and any(line.test.endswith(SHARP_ASKED) for line in lines):
            warned = True
            message = (
                f"reduce-scatter did not use SHARP, although {SHARP} requests it: {sharp_not_used_reason(traced)};"
                f" these rows are called “{UCP} {SHARP_ASKED}”"
            )
            session.record_warning(WarningMessage(NO_SHARP, message, _GET_SHARP))
    return problems


def _make_record_lines(
    session: RankSession, algorithm: str, tool: UccPerftestTool, run: UccPerftestRun, trace: str, printed_output: str
) -> tuple[list[ProbeLine], list[str]]:
    """Return the record lines for a table that ucc_perftest printed, and messages for missing or contradictory rows.

    Bandwidths are computed from size and time. A row is called ``ucc-sharp`` only if the trace shows that SHARP carried
    the vector: UCC falls back to UCP silently.
    """
    ranks, layers = session.plan.workers, parse_transport_layers(trace)
    release = ".".join(str(number) for number in tool.version)
    method = (
        f"{TOOL} of UCC {release}, UCX {logged_ucx_version(trace) or 'of unknown version'}, started by"
        f" {session.mpi.name_and_version} ({session.mpi.mpirun}), results not verified"
    )
    table, problems = parse_ucc_perftest_table(printed_output)
    factor = whole_vector_count_factor(table, layers, ranks, tool.version)
    lines = []
    for row in table:
        if wrong := bandwidth_contradiction_text(row, factor, ranks):
            problems.append(wrong)
            continue
        count = row.count * factor
        layer, fields = layers.get(count), dict[str, Any](test=algorithm)
        if algorithm == SHARP and "TL_SHARP" not in (layer or ""):
            test = f"{UCP if layer else 'ucc'} {SHARP_ASKED}"
            fields = {"test": test, "as_requested": False if layer else None}
        lines.append(
            session.make_probe_line(
                method,
                parse_lanes_to_peers(trace),
                extra_settings=ENVIRONMENT[algorithm],
                probe=osu_rules.REDUCE_SCATTER,
                protocol=layer,
                iterations=run.iterations,
                **osu_rules.reduce_scatter_row_fields(count, *row.seconds, ranks=ranks),
                **fields,
            )
        )
    if not problems:
        counts = {line.count for line in lines}
        missing = [block * ranks for block in run.blocks if block * ranks not in counts]
        problems += [f"it ended before the line for {format_count(count)} elements" for count in missing[:1]]
    return lines, problems


def _run_ucc_perftest(
    session: RankSession,
    algorithm: str,
    argv: Sequence[str],
    extra_variables: Mapping[str, str],
    output_lines: list[str],
) -> None:
    """Run ucc_perftest in every rank, and append the lines that the ranks print to `output_lines`."""
    session.doing = f"while {TOOL} measured {algorithm}"
    session.progress.show_phase(f"{algorithm}: {' '.join(argv[-8:])}")
    ranks = session.start_ranks(
        {"execute": list(argv)}, extra_variables={**ENVIRONMENT[algorithm], **extra_variables}, ucx_only=False
    )
    limit = SILENCE_FACTOR * session.silence
    try:
        for line in session.read_rank_output(ranks, max(limit, session.settings.start_timeout), limit):
            if isinstance(line, str):
                output_lines.append(line)
    except LaunchFailed as error:
        if error.code == mpirun.DIED and _SEGMENTATION_FAULT in str(error):
            error.args = (f"{error}{_TWO_UCX}",)
        raise
    check_ranks_are_one_job("\n".join(output_lines), session.plan.workers)
