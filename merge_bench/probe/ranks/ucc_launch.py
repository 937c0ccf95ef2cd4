"""ucc_perftest among the ranks of a launch: traced first, then measured; its lines as the records keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.cluster import ucx_log
from merge_bench.errors import LaunchFailed
from merge_bench.probe.ranks import last_words, ucc
from merge_bench.probe.ranks.launch import RankSession, program
from merge_bench.probe.ranks.rules import ELEMENT, REDUCE_SCATTER, bus_bandwidth
from merge_bench.probe.shared.placements import as_requested, placement, transports_asked
from merge_bench.records.schema import ProbeLine, WarningLine
from merge_bench.units import format_count

SILENCE_FACTOR = 4.0
"""ucc_perftest says nothing while it repeats an operation."""
NO_SHARP = "sharp-missing"
"""Code of a warning."""
_SEGMENTATION_FAULT = "killed by signal 11"
_TWO_UCX = (
    "; if its UCC was built with another UCX than MPI, keep MPI from loading its own: set OMPI_MCA_pml=ob1 and"
    " OMPI_MCA_osc=^ucx"
)


@dataclass(frozen=True)
class Traced:
    """What a traced run told: layers by source count, UCX's release and lanes, and why SHARP carried nothing."""

    layers: Mapping[int, str]
    ucx: str
    lanes: tuple[str, ...]
    why_no_sharp: str

    @classmethod
    def of(cls, text: str) -> Traced:
        """From all that it printed."""
        known = ucx_log.version(text)
        ucx = f"UCX {known[0] if known else 'of unknown version'}"
        return cls(ucc.carried_by(text), ucx, ucx_log.to_others(text), ucc.why_no_sharp(text))


def measure(session: RankSession, name: str, counts: Sequence[int], iterations: int | None) -> list[str]:
    """Run `name` at every count; each line that can be believed is written down.

    Gives a sentence for each that cannot, and for counts that are missing.

    Raises
    ------
    LaunchFailed
        If it cannot be started, or ends before its time; what it had printed is written down.
    """
    tool, ranks = ucc.find_tool(), session.plan.workers
    problems, fallen_back = [], None
    for chain in ucc.chains(counts, ranks, iterations):
        traced = Traced.of("\n".join(_run(session, name, ucc.command(tool, chain, trace=True), ucc.TRACE, [])))
        said: list[str] = []
        try:
            _run(session, name, ucc.command(tool, chain, trace=False), {}, said)
        finally:
            lines, wrong = _rows(session, name, tool, chain, traced, "\n".join(said))
            for line in lines:
                session.writer.write(line)
        problems += wrong
        if fallen_back is None and any(line.test.endswith(ucc.SHARP_ASKED) for line in lines):
            fallen_back = _without_sharp(session, traced)
            session.writer.write(fallen_back)
    return problems


def _rows(
    session: RankSession, name: str, tool: ucc.Tool, chain: ucc.Chain, traced: Traced, text: str
) -> tuple[list[ProbeLine], list[str]]:
    """A table's lines as the records keep them, and sentences for those that are missing or cannot be believed."""
    ranks = session.plan.workers
    table, problems = ucc.parse_table(text)
    factor = ucc.convention(table, traced.layers, ranks, tool.version)
    wrong = {each.count: ucc.contradiction(each, factor, ranks) for each in table}
    problems += [text for text in wrong.values() if text]
    lines = [
        row(name, each, each.count * factor, chain.iterations, traced, session, tool)
        for each in table
        if wrong[each.count] is None
    ]
    if not problems:
        counts = {line.count for line in lines}
        missing = [block * ranks for block in chain.blocks if block * ranks not in counts]
        problems += [f"it ended before {format_count(count)} elements" for count in missing[:1]]
    return lines, problems


def _run(session: RankSession, name: str, argv: Sequence[str], more: Mapping[str, str], said: list[str]) -> list[str]:
    """Start it in every rank; what it prints is added to `said`."""
    session.doing = f"with {ucc.TOOL} for {name}"
    session.progress.phase(f"{name}: {' '.join(argv[-8:])}")
    ranks = session.execute(
        program(session.spec({"execute": list(argv)})), also={**ucc.ENVIRONMENT[name], **more}, ucx=False
    )  # fmt: skip
    limit = SILENCE_FACTOR * session.silence
    try:
        for line in session.listen(ranks, max(limit, session.settings.start_timeout), limit):
            ranks.note(line)
            said.append(line)
    except LaunchFailed as error:
        if error.code == last_words.DIED and _SEGMENTATION_FAULT in str(error):
            error.args = (f"{error}{_TWO_UCX}",)
        raise
    ucc.check_one_job("\n".join(said), session.plan.workers)
    return said


def _without_sharp(session: RankSession, traced: Traced) -> WarningLine:
    return WarningLine(
        launch=session.launch, code=NO_SHARP,
        message=f"SHARP was asked for ({ucc.SHARP}) and did not carry reduce-scatter: {traced.why_no_sharp}; these rows"
        f" are called “{ucc.UCP} {ucc.SHARP_ASKED}”",
        remedy="take a UCC that was built with SHARP (HPC-X has one), on hosts whose switches run it;"
        " UCC_LOG_LEVEL=debug has ucc_perftest tell what it lacks",
    )  # fmt: skip


def row(
    name: str, printed: ucc.Printed, count: int, iterations: int, traced: Traced, session: RankSession, tool: ucc.Tool
) -> ProbeLine:
    """A line of ucc_perftest as the records keep it, with bandwidths computed from size and time.

    It is called ``ucc-sharp`` only if the trace shows that SHARP carried it: UCC falls back to UCP without a word.
    """
    workers, layers, size = session.workers, traced.layers.get(count), count * ELEMENT
    requested = transports_asked(workers[0].environment)
    as_asked = as_requested(requested.get("UCX_TLS"), traced.lanes)
    test = name
    if name == ucc.SHARP and "TL_SHARP" not in (layers or ""):
        test = f"{ucc.UCP if layers else 'ucc'} {ucc.SHARP_ASKED}"
        as_asked = False if layers else None
    average, least, most = printed.seconds
    return ProbeLine(
        launch=session.launch, probe=REDUCE_SCATTER, test=test, placement=placement(workers),
        method=f"{ucc.TOOL} of UCC {tool.release}, {traced.ucx}, started by {session.mpi.name} ({session.mpi.mpirun}),"
        " results not verified",
        ranks=list(range(len(workers))), hosts=[worker.host for worker in workers], size=size, count=count,
        iterations=iterations, seconds=average, seconds_min=least, seconds_max=most,
        bandwidth_bytes_per_second=bus_bandwidth(size, average, len(workers)),
        bandwidth_min=bus_bandwidth(size, most, len(workers)), bandwidth_max=bus_bandwidth(size, least, len(workers)),
        requested={**requested, **ucc.ENVIRONMENT[name]}, selected=list(traced.lanes), protocol=layers,
        as_requested=as_asked,
    )  # fmt: skip
