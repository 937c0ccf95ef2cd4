"""ucc_perftest in the ranks of a launch: first traced, then measured; its lines become records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merge_bench.cluster import ucx_log
from merge_bench.errors import Caution, LaunchFailed
from merge_bench.probe.ranks import mpirun_messages, ucc
from merge_bench.probe.ranks.launch import RankSession
from merge_bench.probe.ranks.osu_rules import REDUCE_SCATTER, collective
from merge_bench.records.schema import ProbeLine
from merge_bench.units import format_count

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


def measure(session: RankSession, name: str, counts: Sequence[int], iterations: int | None) -> list[str]:
    """Run `name` at every count, and record each line that passes the checks.

    Gives a message for each line that does not, and for missing counts.

    Raises
    ------
    LaunchFailed
        If it cannot be started, or ends early; the lines before that are recorded.
    """
    tool, ranks = ucc.find_tool(), session.plan.workers
    problems, warned = [], False
    for chain in ucc.chains(counts, ranks, iterations):
        trace: list[str] = []
        printed: list[str] = []
        _run(session, name, ucc.command(tool, chain, trace=True), ucc.TRACE, trace)
        traced = "\n".join(trace)
        try:
            _run(session, name, ucc.command(tool, chain, trace=False), {}, printed)
        finally:
            lines, wrong = _rows(session, name, tool, chain, traced, "\n".join(printed))
            for line in lines:
                session.writer.write(line)
        problems += wrong
        if not warned and any(line.test.endswith(ucc.SHARP_ASKED) for line in lines):
            warned = True
            message = (
                f"reduce-scatter did not use SHARP, although {ucc.SHARP} requests it: {ucc.why_no_sharp(traced)};"
                f" these rows are called “{ucc.UCP} {ucc.SHARP_ASKED}”"
            )
            session.warn(Caution(NO_SHARP, message, _GET_SHARP))
    return problems


def _rows(
    session: RankSession, name: str, tool: ucc.Tool, chain: ucc.Chain, trace: str, printed: str
) -> tuple[list[ProbeLine], list[str]]:
    """The records of a table, and messages for lines that are missing or contradict themselves.

    Bandwidths are computed from size and time. A row is called ``ucc-sharp`` only if the trace shows that SHARP carried
    it: UCC falls back to UCP silently.
    """
    ranks, layers = session.plan.workers, ucc.transport_layers(trace)
    release = ".".join(str(number) for number in tool.version)
    method = (
        f"{ucc.TOOL} of UCC {release}, UCX {ucx_log.version(trace) or 'of unknown version'}, started by"
        f" {session.mpi.name} ({session.mpi.mpirun}), results not verified"
    )
    table, problems = ucc.parse_table(printed)
    factor = ucc.convention(table, layers, ranks, tool.version)
    lines = []
    for each in table:
        if wrong := ucc.contradiction(each, factor, ranks):
            problems.append(wrong)
            continue
        count = each.count * factor
        layer, fields = layers.get(count), dict[str, Any](test=name)
        if name == ucc.SHARP and "TL_SHARP" not in (layer or ""):
            test = f"{ucc.UCP if layer else 'ucc'} {ucc.SHARP_ASKED}"
            fields = {"test": test, "as_requested": False if layer else None}
        lines.append(
            session.line(
                method, ucx_log.to_others(trace), also=ucc.ENVIRONMENT[name], probe=REDUCE_SCATTER, protocol=layer,
                iterations=chain.iterations, **collective(count, *each.seconds, ranks=ranks), **fields,
            )
        )  # fmt: skip
    if not problems:
        counts = {line.count for line in lines}
        missing = [block * ranks for block in chain.blocks if block * ranks not in counts]
        problems += [f"it ended before the line for {format_count(count)} elements" for count in missing[:1]]
    return lines, problems


def _run(session: RankSession, name: str, argv: Sequence[str], more: Mapping[str, str], printed: list[str]) -> None:
    """Start it in every rank; its output is added to `printed`."""
    session.doing = f"while {ucc.TOOL} measured {name}"
    session.progress.phase(f"{name}: {' '.join(argv[-8:])}")
    ranks = session.execute({"execute": list(argv)}, also={**ucc.ENVIRONMENT[name], **more}, ucx=False)
    limit = SILENCE_FACTOR * session.silence
    try:
        for line in session.listen(ranks, max(limit, session.settings.start_timeout), limit):
            if isinstance(line, str):
                printed.append(line)
    except LaunchFailed as error:
        if error.code == mpirun_messages.DIED and _SEGMENTATION_FAULT in str(error):
            error.args = (f"{error}{_TWO_UCX}",)
        raise
    ucc.check_one_job("\n".join(printed), session.plan.workers)
