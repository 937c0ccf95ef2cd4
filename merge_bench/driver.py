"""What is done in one launch, step by step, and what is written down of it."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from distributed import Client

from merge_bench import evidence, on_scheduler, steps, worker
from merge_bench.client import dashboard_link, wait_for_workers
from merge_bench.columns import Field
from merge_bench.conversation import Conversation
from merge_bench.engines.gpu_memory import GpuMemory, pool_size
from merge_bench.errors import MergeBenchError, RunFailed, WrongResult
from merge_bench.expect import Expected, expectation, judge_full
from merge_bench.first_cause import Member
from merge_bench.launch.agreement import check_ucx
from merge_bench.launch.base import ClusterSettings, Launcher
from merge_bench.launch.existing import refuse_unmatched
from merge_bench.memory import parse_cores
from merge_bench.observe import IterationAssembler, link_line, memory_line, verification_line
from merge_bench.plan import Plan, check_fits
from merge_bench.record.schema import Cluster, IterationLine, LanesLine, LaunchLine, LinkLine, Worker
from merge_bench.record.writer import CampaignWriter
from merge_bench.report.live import Progress
from merge_bench.verify import Check, judge

MODULES = {
    "native": ("merge_bench.engines.native",),
    "polars": ("merge_bench.engines.polars",),
    "pandas": ("merge_bench.engines.pandas",),
    "cudf": ("merge_bench.engines.cudf",),
}
DATA_PLANE = "merge_bench.exchange.ucx"
CheckLink: TypeAlias = Callable[["LaunchRun", LinkLine], object]


class LaunchRun(Conversation):
    """One launch from the first worker's arrival to the last measurement."""

    def __init__(
        self, client: Client, launcher: Launcher, plan: Plan, settings: ClusterSettings, writer: CampaignWriter,
        progress: Progress, *, launch: int, started: float, up_by: float,
    ) -> None:  # fmt: skip
        super().__init__(client, launcher, plan.timeout)
        self.plan, self.settings, self.writer, self.progress = plan, settings, writer, progress
        self.launch, self.started, self.up_by = launch, started, up_by
        self.topic = f"merge-bench-{secrets.token_hex(8)}"
        self._assembler = IterationAssembler(launch, plan.workers)
        self._checks: dict[int | None, dict[int, Check]] = {}
        self._verdicts = 0
        self.expected: Expected | None = None
        self.data_bytes = self.rows = 0
        self.fields: tuple[tuple[Field, ...], tuple[Field, ...]] = ((), ())  # of the left and the right frame
        self.facts: list[dict[str, Any]] = []
        self.lanes: LanesLine | None = None  # as last recorded

    def run(self, config: str, *, plan_index: int, block: int, check_link: CheckLink | None = None) -> None:
        """Everything after the workers are there; `check_link` is called with what was measured of the link."""
        if self.plan.exchange == "dask":
            from merge_bench.exchange.dask import run_baseline

            run_baseline(self, config, plan_index=plan_index, block=block)
            return
        self.prepare()
        self.open_data_plane()
        self.record_launch(config, plan_index, block)
        evidence.after_connecting(self)
        self.merge()
        link = self.measure_link()
        if check_link is not None and link is not None:
            self.progress.phase("checking the link limit")
            check_link(self, link)
        self.finish()

    # -- the steps, in order

    def gather_workers(self, modules: Sequence[str] | None = None) -> None:
        """Wait for the workers, give them the plugin and their ranks, and have them load their libraries.

        `modules`: what they load; by default the engine and the data plane.
        """
        self.progress.phase("waiting for workers")
        self.watch.start([])
        workers = wait_for_workers(
            lambda: self.call(self.client._run_on_scheduler(on_scheduler.worker_names)),
            self.launcher, self.settings, self.plan.workers, self.up_by,
        )  # fmt: skip
        # Our own workers are numbered host by host; those of a running cluster are put side by side.
        owned = self.launcher.owns_processes
        chosen = sorted(workers, key=lambda at: ("" if owned else workers[at][0], _natural(workers[at][1])))
        placed = self.launcher.placed()
        self.members = [
            Member(rank, address, workers[address][1], placed.get(workers[address][1], workers[address][0]), 0)
            for rank, address in enumerate(chosen[: self.plan.workers])
        ]
        self.watch.start(self.members)
        self.call(self.client._register_worker_plugin(worker.MergeWorker(), worker.PLUGIN, True))
        self.progress.phase("loading libraries")
        if modules is None:
            modules = MODULES[self.plan.engine] + ((DATA_PLANE,) if self.plan.exchange == "ucx" else ())
        facts = self.on_all(steps.describe, modules, tuple(self.settings.environment))
        self.members = [
            Member(m.rank, m.address, m.name, fact["host"], fact["pid"])
            for m, fact in zip(self.members, facts, strict=True)
        ]
        self.watch.start(self.members)
        self.facts = facts
        check_ucx(facts)
        evidence.record_cautions(self)
        if not self.launcher.owns_processes:
            refuse_unmatched(facts, self.settings.environment)
        for host in {member.host for member in self.members}:
            here = [fact for member, fact in zip(self.members, facts, strict=True) if member.host == host]
            check_fits(self.plan, here[0]["hardware"]["available_bytes"], len(here), host)
        if self.plan.engine == "cudf":
            self._set_up_devices()
        self.client.subscribe_topic(self.topic, self._on_event)

    def _set_up_devices(self) -> None:
        """A pool of device memory for every worker, of a size that does not depend on which of them is first."""
        self.on_all(steps.open_device)  # each context takes some of the memory that the next step looks at
        found = self.on_all(steps.inspect_device)
        places = [
            (member.host, str(fact["environment"].get("CUDA_VISIBLE_DEVICES")).partition(",")[0])
            for member, fact in zip(self.members, self.facts, strict=True)
        ]
        on_gpu: dict[tuple[str, str], list[GpuMemory]] = {}
        for place, memory in zip(places, found, strict=True):
            on_gpu.setdefault(place, []).extend([memory] if memory else [])
        sizes = {place: pool_size(self.settings.rmm_pool_bytes, each) for place, each in on_gpu.items() if each}
        self.results(self.submit(steps.set_up_device, [(sizes.get(place),) for place in places]))

    def prepare(self) -> None:
        """Have every worker generate or read its chunks."""
        self.progress.phase("making the tables")
        prepared = self.on_all(steps.prepare, self.plan, ranked=True, after=(self.topic,))
        if len({p.fields for p in prepared}) != 1:
            raise RunFailed("the workers disagree about the tables' columns")
        self.fields = prepared[0].fields
        self.rows = sum(p.rows for p in prepared)
        self.data_bytes = sum(p.input_bytes for p in prepared)
        if self.plan.verify != "off":
            self.expected = expectation(self.plan, prepared)

    def record_launch(self, config: str, plan_index: int, block: int) -> None:
        """Write the launch line: from here on the folder can be read as a result."""
        workers = [
            Worker(
                rank=m.rank, host=m.host, pid=m.pid, name=m.name, environment=f["environment"],
                versions=f["versions"], ucx=f["ucx"], hardware=f["hardware"],
            )
            for m, f in zip(self.members, self.facts, strict=True)
        ]  # fmt: skip
        port = self.call(self.client._run_on_scheduler(on_scheduler.dashboard_port))
        address = self.client.scheduler.address if self.client.scheduler else None
        self.writer.write(
            LaunchLine(
                launch=self.launch, config=config, plan=plan_index, block=block,
                cluster=Cluster(
                    launcher=self.launcher.name, protocol=self.plan.protocol,
                    scheduler=address,
                    dashboard=dashboard_link(address, port),
                ),
                workers=workers, data_bytes=self.data_bytes, rows=self.rows,
                startup_seconds=time.monotonic() - self.started,
            )
        )  # fmt: skip

    def open_data_plane(self) -> None:
        """Connect every worker with every other."""
        self.progress.phase("connecting")
        each = [(self.rows, count) for count in self._threads()]
        self.connect_all(self.results(self.submit(steps.open_data_plane, each)))

    def connect_all(self, addresses: list[bytes]) -> None:
        """Connect every worker with every other, and learn what settings their UCX has."""
        connected = self.on_all(steps.connect, addresses)
        self._assembler.skew = max(c["round_trip"] for c in connected)
        for fact, connection in zip(self.facts, connected, strict=True):
            fact["ucx"] = {**fact["ucx"], "config": connection["ucx_config"]}

    def _threads(self) -> list[int]:
        """Every worker's share of the cores that its host's workers may run on, at most those it may run on itself."""
        here = Counter(member.host for member in self.members)
        own = [parse_cores(fact["hardware"]["affinity"]) for fact in self.facts]
        cores: dict[str, frozenset[int]] = {}
        for member, its in zip(self.members, own, strict=True):
            cores[member.host] = cores.get(member.host, frozenset()) | its
        return [
            max(1, min(len(its), len(cores[member.host]) // here[member.host]))
            for member, its in zip(self.members, own, strict=True)
        ]

    def merge(self) -> None:
        """Warm up, measure, verify."""
        plan = self.plan
        every = plan.verify == "every"
        if plan.warmup:
            self.progress.phase("warming up")
            self.on_all(steps.iterate, 0, plan.warmup, warmup=True, verify=every)
            if plan.verify != "off" and not every:
                self._verify(None)
        self.progress.phase("merging")
        with evidence.counted(self, "iterations"):
            self.on_all(steps.iterate, 0, plan.iterations, warmup=False, verify=every)
        self._until_events_arrived(plan.warmup + plan.iterations)
        if plan.verify != "off" and not every:
            self._verify(plan.iterations - 1)

    def measure_link(self) -> LinkLine | None:
        """What the link can carry, measured with the merge's own messages."""
        if self.plan.workers == 1 or not self.plan.link_rounds:
            return None
        self.progress.phase("measuring the link")
        with evidence.counted(self, "link"):
            measured = self.on_all(steps.measure_link, self.plan.link_rounds)
        line = link_line(self.launch, measured)
        self.writer.write(line)
        return line

    def finish(self) -> None:
        """Lanes, if there are more of them now, and memory."""
        ends = self.on_all(steps.finish)
        evidence.record_lanes(self)
        self.writer.write(memory_line(self.launch, ends))
        self.on_all(steps.close)

    # -- events

    def _on_event(self, event: tuple[float, dict[str, Any]]) -> None:
        message = event[1]
        if message["event"] == "out-of-memory":
            self.watch.report(message["message"])
            return
        try:
            if message["event"] == "iteration":
                self._collect_iteration(message)
            elif message["event"] == "verification":
                self._collect_check(message)
        except MergeBenchError as error:
            self.notice(error)
        else:
            self.notice()

    def _collect_iteration(self, message: dict[str, Any]) -> None:
        line = self._assembler.add(message)
        if line is not None:
            self.collect_iteration(line)

    def collect_iteration(self, line: IterationLine) -> None:
        """Write an iteration down and show it."""
        self.writer.write(line)
        if not line.warmup:
            rate = self.data_bytes / line.wall_seconds
            self.progress.iteration(line.index, self.plan.iterations, line.wall_seconds, rate)

    def _collect_check(self, message: dict[str, Any]) -> None:
        after = None if message["warmup"] else message["index"]
        checks = self._checks.setdefault(after, {})
        checks[message["rank"]] = Check.from_json(message["check"])
        if len(checks) == self.plan.workers:
            del self._checks[after]
            self.record_verdict(after, [checks[rank] for rank in range(self.plan.workers)])

    def _until_events_arrived(self, count: int) -> None:
        verified = self.plan.verify != "every"
        expected_checks = self.plan.iterations + self.plan.warmup
        deadline = time.monotonic() + self.plan.timeout

        def arrived() -> bool:
            return self._assembler.complete >= count and (verified or self._verdicts >= expected_checks)

        self.until(lambda: arrived() or time.monotonic() > deadline)
        if not arrived():
            raise RunFailed(
                f"the workers merged, and their measurements did not arrive within {self.plan.timeout:g} s: the"
                " connection to the scheduler was interrupted"
            )

    def _verify(self, after: int | None) -> None:
        self.progress.phase("verifying")
        self.record_verdict(after, self.on_all(steps.verify))

    def record_verdict(self, after: int | None, checks: list[Check]) -> None:
        """Judge what the workers found and write it down; raises `WrongResult`."""
        assert self.expected is not None
        verdict = judge(checks, self.expected.rows, self.expected.checksum)
        if verdict.ok and self.plan.verify == "full":
            verdict = judge_full(self.plan, verdict, checks)
        self.writer.write(verification_line(self.launch, after, verdict, self.expected.how))
        self._verdicts += 1
        if not verdict.ok:
            raise WrongResult(verdict.message or "the merge result is wrong")


def _natural(name: Any) -> tuple[int, str]:
    digits = "".join(c for c in str(name) if c.isdigit())
    return (int(digits) if digits else 0, str(name))
