"""`probe p2p`: latency and bandwidth between two workers over message size, with UCX's own ``ucx_perftest``.

In each launch every test runs once between every pair, in one pair of processes for all sizes, with the environment of
the workers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.config import parsers
from merge_bench.config.allowed_transports import select_transport_settings
from merge_bench.config.option import choice_option, value_option
from merge_bench.config.options import RunOptions
from merge_bench.config.variables import UCXX_OVERRIDES
from merge_bench.probe.shared import Probe, ProbeKind
from merge_bench.probe.shared.options import (
    PairOptions,
    PairPlacements,
    are_lanes_as_requested,
    parse_allowed_names,
    parse_message_sizes,
)
from merge_bench.records import ONE_HOST

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.cluster.ucx_perftest import PerftestType

SIZES = "1..4M"


@dataclass(frozen=True, kw_only=True)
class P2POptions(PairOptions):
    """Options of `probe p2p`: types of messages, and where their buffers are.

    tests: Types of UCX messages to test, separated by commas: tag, am (active messages), stream.
    memory: Memory of the message buffers: host, or cuda (GPU memory).
    """

    tests: str = value_option(parsers.parse_nonblank_text, "tag", "KIND[,KIND]")
    memory: str = choice_option("host|cuda", "host")


def make_probe(options: P2POptions, run_options: RunOptions) -> P2PProbe:
    """Make the probe of ucx_perftest from its options; raises UsageError if tests, sizes or placements are wrong."""
    from merge_bench.cluster.ucx_perftest import BANDWIDTH, KINDS, LATENCY, PerftestType

    kinds = parse_allowed_names("--tests", options.tests, KINDS)
    tests = tuple(PerftestType(kind, measures) for kind in kinds for measures in (LATENCY, BANDWIDTH))
    sizes, placements = parse_message_sizes(options.sizes or SIZES), PairPlacements.parse_placements(options.placement)
    return P2PProbe(tests, sizes, placements, options.memory, options.iterations)


@dataclass(frozen=True)
class P2PProbe(Probe):
    """The network measurement `probe p2p`: latency and bandwidth between two workers with ucx_perftest.

    `count`: iterations for each size, None for the defaults.
    """

    tests: tuple[PerftestType, ...]
    sizes: tuple[int, ...]
    placements: PairPlacements
    memory: str = "host"
    count: int | None = None
    name = "p2p"

    @property
    def uses_gpu_memory(self) -> bool:
        return self.memory == "cuda"

    def describe_for_records(self) -> dict[str, Any]:
        from merge_bench.cluster import ucx_perftest

        return {
            "tests": [test.test_name for test in self.tests],
            "sizes": list(self.sizes),
            "memory": self.memory,
            "placements": list(self.placements.requested),
            "iterations": self.count,
            "window": ucx_perftest.WINDOW,
        }

    def adapt_run_to_probe(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the run with the workers that the placements need; raises UsageError if ucx_perftest is missing."""
        from merge_bench.cluster import ucx_perftest

        if planned_run.launcher.starts_here:
            ucx_perftest.find_perftest_program(
                {**os.environ, **planned_run.settings.ucx_selection_variables(os.environ)}
            )
        return self.placements.adapt_run_to_placements(planned_run)

    def expected_launch_seconds(self, planned_run: PlannedRun) -> float | None:
        """Return the expected seconds of a launch; None if the user set the number of iterations.

        As measured: 24.7 s for 2 tests at 23 sizes.
        """
        rows = len(self.tests) * len(self.sizes) * self.placements.rank_pair_count(planned_run)
        return None if self.count else 2.0 + 0.5 * rows

    def measure_and_record(self, session: Session) -> None:
        """Run every test of ucx_perftest between every pair of workers, and write its rows to the records."""
        from merge_bench.cluster import worker_programs

        session.record_launch()
        origin = session.workers.run_on_all_workers(worker_programs.find_perftest_origin)[0]
        hosts = [member.host for member in session.members]
        for pair, placement in self.placements.rank_pairs(session.job.prepared, hosts):
            for test in self.tests:
                session.progress.show_phase(f"{test.test_name}, {placement}, ranks {pair[0]} and {pair[1]}")
                self._run_and_record_test(session, test, pair, placement, origin)

    def _run_and_record_test(
        self, session: Session, test: PerftestType, ranks: tuple[int, int], placement: str, tool_origin: str
    ) -> None:
        """Run one test of ucx_perftest from the first rank to the second, and write its rows to the records."""
        from merge_bench.cluster import ucx_perftest, worker_programs
        from merge_bench.records.schema import ProbeLine

        client, server = ranks
        text = ucx_perftest.perftest_batch_file_text(
            test, self.sizes, memory=self.memory, iterations=self.count, error_handling=False
        )
        limits = self._output_line_timeouts(test, session.plan.timeout)
        affinity = [session.descriptions[rank].hardware.affinity or "" for rank in ranks]
        cores = choose_perftest_cores(*affinity, placement=placement)
        opened = session.workers.run_on_rank(server, worker_programs.start_perftest_server, text, cores[1])
        calls = {
            client: (worker_programs.run_perftest_client, opened, text, limits, cores[0]),
            server: (worker_programs.wait_for_perftest_server, opened),
        }
        output, _ = session.workers.run_on_ranks(calls)
        log = ucx_perftest.parse_ucx_log(output.log, test)
        environment = {**UCXX_OVERRIDES, **session.descriptions[client].environment}
        transports_fit = are_lanes_as_requested(environment.get("UCX_TLS"), log.lanes)
        how = f"window {ucx_perftest.WINDOW}" if test.measures == ucx_perftest.BANDWIDTH else "half the round trip"
        for figures in ucx_perftest.parse_median_figures(output.text, self.sizes):
            session.writer.write(
                ProbeLine(
                    launch=session.launch,
                    probe=self.name,
                    test=test.test_name,
                    placement=placement,
                    memory=self.memory,
                    method=f"ucx_perftest of UCX {log.version or 'unknown'} ({tool_origin}), {how}, median of"
                    f" {ucx_perftest.RUNS} runs",
                    ranks=list(ranks),
                    hosts=[session.members[rank].host for rank in ranks],
                    size=figures.size,
                    iterations=figures.iterations,
                    seconds=figures.seconds,
                    bandwidth_bytes_per_second=figures.bandwidth,
                    messages_per_second=figures.messages,
                    requested=select_transport_settings(environment),
                    selected=list(log.lanes),
                    protocol=log.protocol_for_message(figures.size),
                    as_requested=transports_fit and not log.missing,
                )
            )

    def _output_line_timeouts(self, test: PerftestType, timeout_seconds: float) -> list[float]:
        """Return the seconds that ucx_perftest may take for each line of its batch file, one for each size and run."""
        from merge_bench.cluster import ucx_perftest
        from merge_bench.cluster.worker_programs import SLOWEST_BYTES_PER_SECOND

        def timeout_for_size(size: int) -> float:
            timed, warm = ucx_perftest.perftest_iteration_counts(size, test.measures)
            round_trips = 2 if test.measures == ucx_perftest.LATENCY else 1
            return 2 * timeout_seconds + ((self.count or timed) + warm) * size * round_trips / SLOWEST_BYTES_PER_SECOND

        return [timeout_for_size(size) for size in self.sizes for _ in range(ucx_perftest.RUNS)]


def choose_perftest_cores(
    client_cores: str, server_cores: str, *, placement: str
) -> tuple[int, int] | tuple[None, None]:
    """Return the core numbers that the client and the server of ucx_perftest are bound to, or None for both.

    `client_cores`, `server_cores`: the cores of their workers, as ``0-3``. Both programs poll. Unless bound, the kernel
    of a busy host might run them on one core, in turns of milliseconds.
    """
    from merge_bench.host.kernel_files import parse_core_list

    shared = sorted(parse_core_list(client_cores) & parse_core_list(server_cores))
    return (shared[0], shared[1]) if placement == ONE_HOST and len(shared) > 1 else (None, None)


PROBE = ProbeKind(
    name=P2PProbe.name,
    help="Latency and bandwidth between two workers for each message size, measured with ucx_perftest of UCX.",
    options=P2POptions,
    make=make_probe,
)
