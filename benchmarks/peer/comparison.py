"""The comparison itself: blocks of launches in random order, each recorded as soon as it has ended."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from benchmarks import command
from benchmarks.peer import ratios
from benchmarks.peer.contenders import REFERENCE, Contender, choose
from benchmarks.peer.protocol import Job, Outcome, PeerError, read_outcome
from benchmarks.peer.ratios import Sample, Standing, fastest, standings
from benchmarks.processes import Ended, run_limited, surroundings
from merge_bench.errors import WrongResult

WRONG = WrongResult.exit_status
SPREAD = 5.0  # slowest ÷ fastest iteration of a launch, above which a person should look


SCHEMA = 1


class Store:
    """`results/peers-<utc>/` with `records.jsonl`, `table.md` and the peers' own output.

    It can be read at any moment: each line is on the disk as soon as its launch has ended.
    """

    def __init__(self, results: Path) -> None:
        self.folder = command.new_folder(results, "peers")
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        self._file = (self.folder / "records.jsonl").open("ab")

    def write(self, kind: str, **fields: Any) -> None:
        """Append one line."""
        line = {"kind": kind, "schema": SCHEMA, "time": time.time(), **fields}
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, table: str) -> None:
        """Write the Markdown table; no more lines."""
        command.write(self.folder / "table.md", table)
        self._file.close()


@dataclass
class Comparison:
    """What has been measured so far. `without`: beginnings of variables that contenders do not inherit.

    `limit`: seconds of a launch; `settle`: between launches; `indent`: of lines of progress. `stopped`: contenders that
    reached the limit, or failed `patience` times, and are not launched again.
    """

    job: Job
    contenders: Sequence[Contender]
    store: Store
    limit: float
    settle: float = 1.0
    indent: str = "    "
    samples: list[Sample] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    status: int = 0
    without: tuple[str, ...] = ()
    stopped: set[str] = field(default_factory=set)
    patience: float = math.inf

    @classmethod
    def of(cls, names: Sequence[str], job: Job, folder: Path, limit: float, gpus: int = 0) -> Self:
        """A comparison of merge_bench with the contenders of these names, stored in `folder`."""
        return cls(job, choose(names, gpus=gpus), Store(folder), limit)

    def say(self, line: str) -> None:
        """Print a line of progress."""
        command.say(self.indent + line)

    def run(self, blocks: int, seed: int, until: float = math.inf) -> int:
        """Launch every contender once in each block, in an order drawn from `seed` and the block's number.

        A contender that was stopped at the time limit, or failed too often, is left out of later blocks, merge_bench
        excepted; where only merge_bench would be left, there are no more blocks. No block is begun that would not end
        before `until`, on the monotonic clock, if it took as long as the longest, without the launches that were
        stopped.
        Gives the number of blocks that were run.
        """
        longest = 0.0
        for block in range(blocks):
            began, lost = time.monotonic(), 0.0
            if began + longest > until:
                return block
            left = [contender for contender in self.contenders if contender.name not in self.stopped]
            if self.stopped and [contender.name for contender in left] == [REFERENCE]:
                self.say(f"no more blocks: only {REFERENCE} would be left")
                return block
            order = command.shuffled(left, seed, block)
            self.store.write("block", block=block, order=[contender.name for contender in order])
            total = len(self.samples) + (blocks - block) * len(order)
            for contender in order:
                number = len(self.samples)
                self.say(f"[{number + 1}/{total}] block {block + 1}, {contender.name}")
                ended = self._launch(contender, block, number)
                reason = self._stops(contender, ended)
                if reason and contender.name != REFERENCE:
                    self.stopped.add(contender.name)
                    lost += ended.seconds
                    self.say(f"    {contender.name} is not launched again, since {reason}")
                time.sleep(self.settle)
            longest = max(longest, time.monotonic() - began - lost)
        return blocks

    def _stops(self, contender: Contender, ended: Ended) -> str | None:
        if ended.timed_out:
            return "it reached the time limit"
        failed = sum(1 for sample in self.samples if sample.contender == contender.name and not sample.walls)
        return f"it failed {failed} times" if failed >= self.patience else None

    def _launch(self, contender: Contender, block: int, number: int) -> Ended:
        stem = self.store.logs / f"{number:03d}-{contender.name}"
        job, own = dataclasses.replace(self.job, options=contender.options), contender.surroundings(self.job)
        argv = [sys.executable, "-m", f"benchmarks.peer.{contender.module}", *job.argv()]
        ended = run_limited(argv, {**surroundings(*self.without), **own}, stem, self.limit)
        outcome, problem = self._judge(ended)
        self.store.write(
            "launch",
            contender=contender.name,
            family=contender.family,
            block=block,
            argv=argv,
            environment=own,
            status=ended.status,
            seconds=ended.seconds,
            left_over=ended.left_over,
            outcome=outcome,
            failure=problem,
        )
        if outcome is None:
            self.say(f"    failed: {problem}")
            self.samples.append(Sample(contender.name, block, ()))
            self.status = max(self.status, PeerError.exit_status)
            return ended
        sample = Sample(contender.name, block, tuple(outcome.wall_seconds), outcome.peak_rss_bytes)
        self.samples.append(sample)
        self.versions[contender.name] = outcome.version
        self.results[contender.name] = "not checkable" if outcome.verified is None else "verified"
        self.say(f"    {sample.wall:.4g} s, {self.results[contender.name]}")
        least, most = min(sample.walls), max(sample.walls)
        if least * SPREAD < most:
            busy = "the machine may be busy, or the program reused an earlier result"
            self.say(f"    the iterations took {least:.4g} to {most:.4g} s: {busy}")
        return ended

    def _judge(self, ended: Ended) -> tuple[Outcome | None, str | None]:
        if ended.failure:
            self.status = max(self.status, WRONG if ended.status == WRONG else 0)
            return None, ended.failure
        try:
            outcome = read_outcome(ended.output.read_text(errors="replace"), self.job.iterations)
        except PeerError as error:
            return None, str(error)
        return (None, "the merge result was not verified") if outcome.verified is False else (outcome, None)

    def standings(self) -> list[Standing]:
        """One line for each contender, of what there is so far."""
        return standings(self.samples, [contender.name for contender in self.contenders], REFERENCE)

    def finish(self) -> str:
        """Write the summary and the Markdown table, and close the store; gives the table as plain text."""
        lines = self.standings()
        counted = fastest(lines, {contender.name: contender.family for contender in self.contenders})
        for line in lines:
            self.store.write("summary", **dataclasses.asdict(line), counted=line.contender in counted)
        self.store.write("end", status=self.status)
        rows = ratios.cells(lines, self.versions, self.results, counted, self.job.data_bytes)
        self.store.close(f"{self.caption()}\n\n{command.table(ratios.HEADINGS, rows, ratios.TEXT)}")
        return f"{self.caption()}\n\n{command.aligned(ratios.HEADINGS, rows, ratios.TEXT)}"

    def caption(self) -> str:
        """What the numbers are of."""
        job = self.job
        what = f"{job.rows_per_chunk:,} rows × {job.workers} chunks of each frame"
        if job.tables and job.tables.columns:
            names = (Path(path).name for path in (job.tables.left, job.tables.right))
            what = f"{job.how} join of {' and '.join(names)} on {', '.join(job.on)}"
        return (
            f"{what} ({job.data_bytes / 2**30:.3f} GiB of data), {job.threads} cores, {job.iterations} iterations per"
            f" launch after {job.warmup} warm-up."
            " Wall: median over launches of their median iteration. Ours / peer: median over blocks of the peer's wall"
            " ÷ merge_bench's; above 1, merge_bench is faster."
            " *: the fastest variant of its kind; only this variant counts."
        )
