"""The comparison itself: blocks of launches in random order, each recorded as soon as it has ended."""

from __future__ import annotations

import dataclasses
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from benchmarks import command
from benchmarks.peer import table
from benchmarks.peer.contenders import REFERENCE, Contender, choose
from benchmarks.peer.protocol import Job, Outcome, PeerError, read_outcome
from benchmarks.peer.ratios import Sample, Standing, fastest, standings
from benchmarks.peer.store import Store
from benchmarks.processes import Ended, run_limited, surroundings
from merge_bench.errors import WrongResult

WRONG = WrongResult.exit_status
SPREAD = 5.0  # slowest ÷ fastest iteration of a launch, above which a person should look


@dataclass
class Comparison:
    """What has been measured so far. `without`: beginnings of variables that contenders do not inherit."""

    job: Job
    contenders: Sequence[Contender]
    store: Store
    limit: float
    settle: float
    say: Callable[[str], None]
    samples: list[Sample] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    status: int = 0
    without: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, names: Sequence[str], job: Job, folder: Path, limit: float, say: Callable[[str], None], gpus: int = 0
    ) -> Self:
        """A comparison of merge_bench with the contenders of these names, stored in `folder`."""
        return cls(job, choose(names, gpus=gpus), Store(folder), limit, 1.0, say)

    def run(self, blocks: int, seed: int, until: float = math.inf) -> int:
        """Launch every contender once in each block, in an order drawn from `seed` and the block's number.

        No block is begun that would not end before `until`, on the monotonic clock, if it took as long as the longest.
        Gives the number of blocks that were run.
        """
        longest = 0.0
        total = blocks * len(self.contenders)
        for block in range(blocks):
            began = time.monotonic()
            if began + longest > until:
                return block
            order = shuffled(self.contenders, seed, block)
            self.store.write("block", {"block": block, "order": [contender.name for contender in order]})
            for contender in order:
                number = len(self.samples)
                self.say(f"[{number + 1}/{total}] block {block + 1}, {contender.name}")
                self._launch(contender, block, number)
                time.sleep(self.settle)
            longest = max(longest, time.monotonic() - began)
        return blocks

    def _launch(self, contender: Contender, block: int, number: int) -> None:
        stem = self.store.logs / f"{number:03d}-{contender.name}"
        job = dataclasses.replace(self.job, options=contender.options)
        argv = [sys.executable, "-m", f"benchmarks.peer.{contender.module}", *job.argv()]
        ended = run_limited(argv, {**surroundings(*self.without), **contender.surroundings(self.job)}, stem, self.limit)
        outcome, problem = self._judge(ended)
        self.store.write(
            "launch",
            {
                "contender": contender.name, "family": contender.family, "block": block, "argv": argv,
                "environment": contender.surroundings(self.job), "status": ended.status, "seconds": ended.seconds,
                "left_over": ended.left_over, "outcome": None if outcome is None else msgspec.to_builtins(outcome),
                "failure": problem,
            },
        )  # fmt: skip
        if outcome is None:
            self.say(f"    failed: {problem}")
            self.samples.append(Sample(contender.name, block, ()))
            self.status = max(self.status, PeerError.exit_status)
            return
        sample = Sample(contender.name, block, tuple(outcome.wall_seconds), outcome.peak_rss_bytes)
        self.samples.append(sample)
        self.versions[contender.name] = outcome.version
        self.results[contender.name] = "not checkable" if outcome.verified is None else "verified"
        self.say(f"    {sample.wall:.4g} s, {self.results[contender.name]}")
        if min(sample.walls) * SPREAD < max(sample.walls):
            self.say(
                f"    its iterations took {min(sample.walls):.4g} to {max(sample.walls):.4g} s: the machine may be"
                " busy, or an earlier result was used again"
            )

    def _judge(self, ended: Ended) -> tuple[Outcome | None, str | None]:
        if ended.failure:
            self.status = max(self.status, WRONG if ended.status == WRONG else 0)
            return None, ended.failure
        try:
            outcome = read_outcome(ended.output.read_text(errors="replace"), self.job.iterations)
        except PeerError as error:
            return None, str(error)
        return (None, "its result was not verified") if outcome.verified is False else (outcome, None)

    def standings(self) -> list[Standing]:
        """One line for each contender, of what there is so far."""
        return standings(self.samples, [contender.name for contender in self.contenders], REFERENCE)

    def finish(self) -> str:
        """Write the summary and the Markdown table, and close the store; gives the table as plain text."""
        lines = self.standings()
        counted = fastest(lines, {contender.name: contender.family for contender in self.contenders})
        for line in lines:
            self.store.write("summary", {**dataclasses.asdict(line), "counted": line.contender in counted})
        self.store.write("end", {"status": self.status})
        rows = table.cells(lines, self.versions, self.results, counted, self.job.data_bytes)
        self.store.close(f"{self.caption()}\n\n{command.table(table.HEADINGS, rows, table.TEXT)}")
        return f"{self.caption()}\n\n{command.aligned(table.HEADINGS, rows, table.TEXT)}"

    def caption(self) -> str:
        """What the numbers are of."""
        job = self.job
        return (
            f"{job.rows_per_chunk:,} rows × {job.workers} chunks of each frame ({job.data_bytes / 2**30:.3f} GiB of"
            f" data), {job.threads} cores, {job.iterations} iterations in a launch after {job.warmup} warm-up."
            " Wall: median over launches of their median iteration. Ours / peer: median over blocks of the peer's wall"
            " ÷ merge_bench's, above 1 where merge_bench is faster. *: the fastest of its kind, which counts."
        )


def shuffled(contenders: Sequence[Contender], seed: int, block: int) -> list[Contender]:
    """The order of a block: the same for the same seed."""
    order = list(contenders)
    random.Random(f"{seed}/{block}").shuffle(order)
    return order
