"""The job that the comparison gives a peer on its command line, and the peer's answer: one line of JSON each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Annotated, Literal, TypeAlias

import msgspec

from merge_bench.cluster.supervisor import die_with_parent
from merge_bench.errors import MergeBenchError, RunFailed
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.workload import KEY, SyntheticSpec

Seconds = Annotated[float, msgspec.Meta(gt=0)]
END_SECONDS = 5.0  # for a program to end by itself after SIGTERM


class PeerError(RunFailed):
    """A peer did not do its job, or its answer cannot be read."""

    code = "peer-failed"


Kind: TypeAlias = Literal["inner", "left", "semi", "anti"]
"""The kinds of join that all libraries here name alike."""


@dataclass(frozen=True)
class Tables:
    """Parquet tables to join instead of synthetic ones, and what the result must be.

    `checksum`: Σ left payload · right payload modulo 2⁶⁴ over the rows of the result, so that their order does not
    matter. Payloads are the columns ``left_payload`` and ``right_payload``. With `columns`, those of the result, the
    tables may have any columns, `checksum` is that of `peer.tables`, and `data_bytes` is the size of both tables.
    """

    left: str
    right: str
    on: tuple[str, ...]
    rows: int
    checksum: int
    how: Kind = "inner"
    columns: tuple[str, ...] = ()
    data_bytes: int = 0


@dataclass(frozen=True)
class Job:
    """The merge that every peer does.

    `rows_per_chunk`: of each frame; `workers`: chunks of each frame, and processes of those peers that have several;
    `threads`: all workers' cores together. `options`: of this variant of the peer. `payload_columns` and `zipf`: as in
    `SyntheticSpec`; tables have one payload column on each side. `join`: the kind of join of synthetic rows.
    """

    rows_per_chunk: int
    workers: int
    threads: int
    iterations: int
    warmup: int
    fraction: float
    seed: int
    options: Mapping[str, str] = field(default_factory=dict)
    tables: Tables | None = None
    payload_columns: int = 1
    zipf: float = 0.0
    join: Kind = "inner"

    @property
    def on(self) -> tuple[str, ...]:
        """The names of the keys."""
        return self.tables.on if self.tables else (KEY,)

    @property
    def how(self) -> Kind:
        """Which rows the result has."""
        return self.tables.how if self.tables else self.join

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the result."""
        if self.tables and self.tables.columns:
            return self.tables.columns
        numbers = [""] if self.tables else [f"_{number}" for number in range(self.payload_columns)]
        sides = ("left", "right") if JoinKind(self.how).has_right_columns else ("left",)
        return (*self.on, *(f"{side}_payload{number}" for side in sides for number in numbers))

    @property
    def spec(self) -> SyntheticSpec:
        """Both tables."""
        rows = self.rows_per_chunk * self.workers
        return SyntheticSpec(rows, self.fraction, self.seed, self.payload_columns, self.zipf)

    @property
    def data_bytes(self) -> int:
        """Data processed by an iteration: rows × item sizes of both frames."""
        if self.tables and self.tables.data_bytes:
            return self.tables.data_bytes
        return 2 * self.spec.rows * self.spec.bytes_per_row

    @property
    def checked_after(self) -> frozenset[int]:
        """Which merges are verified, counted from the first warm-up: the last warm-up and the last one of all."""
        return frozenset({self.warmup - 1, self.warmup + self.iterations - 1} - {-1})

    def argv(self) -> list[str]:
        """The command line that `serve` reads."""
        return [msgspec.json.encode(self).decode()]


def workers_per_gpu(workers: int, gpus: int) -> int:
    """How many workers share a GPU where they are spread as evenly as can be; 1 without GPUs."""
    return -(-workers // gpus) if gpus else 1


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a peer answers.

    `wall_seconds`: one value a timed iteration. `rows`: of the result. `verified`: None where the peer is a program
    that does not give its result away. `peak_rss_bytes`: high-water mark of the processes that hold the data,
    summed, verification left out; None where it cannot be known.
    """

    name: str
    version: str
    wall_seconds: list[Seconds]
    rows: int | None
    verified: bool | None
    peak_rss_bytes: int | None


def read_outcome(text: str, iterations: int) -> Outcome:
    """The answer in a peer's standard output: its last line that is a JSON object.

    Raises
    ------
    PeerError
        If there is none, or it has another shape, or not one time for each iteration.
    """
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise PeerError("the program ended without a result")
    try:
        outcome = msgspec.json.decode(lines[-1], type=Outcome)
    except msgspec.DecodeError as error:
        raise PeerError(f"cannot read the result of the program: {error}") from None
    if len(outcome.wall_seconds) != iterations:
        raise PeerError(f"the program reported {len(outcome.wall_seconds)} instead of {iterations} iterations")
    return outcome


def serve(run: Callable[[Job], Outcome]) -> None:
    """The main function of a peer: read the job, do it, answer.

    SIGTERM and the death of the parent process end it the orderly way, so that what it started ends too.
    """
    die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _leave)
    try:
        outcome = run(msgspec.json.decode(sys.argv[1], type=Job))
    except MergeBenchError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_status)
    print(msgspec.json.encode(outcome).decode(), flush=True)


def printed_by(program: str, command: Sequence[str], **environment: str) -> str:
    """What `command` prints, also passed on to standard error as it comes. Its process ends with this function.

    `environment`: what it gets besides this process's own.

    Raises
    ------
    PeerError
        If it ends with another status than 0. `program`: its name in the message.
    """
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                sys.stderr.write(line)
                sys.stderr.flush()
            status = process.wait()
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()
            raise
    if status:
        raise PeerError(f"{program} ended with status {status}")
    return "".join(lines)


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
