"""What the comparison tells a peer on its command line, and what a peer answers: one line of JSON."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

import msgspec

from merge_bench.errors import MergeBenchError, RunFailed
from merge_bench.merge.workload.synthetic import SyntheticSpec

_PR_SET_PDEATHSIG = 1


class PeerError(RunFailed):
    """A peer did not do what it was asked for, or said something that cannot be understood."""

    code = "peer-failed"


@dataclass(frozen=True)
class Job:
    """The merge that every peer does.

    `rows_per_chunk`: of each frame; `workers`: chunks of each frame, and processes of those peers that have several;
    `threads`: all workers' cores together. `options`: what tells this peer's variant from its siblings.
    """

    rows_per_chunk: int
    workers: int
    threads: int
    iterations: int
    warmup: int
    fraction: float
    seed: int
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> SyntheticSpec:
        """Both tables."""
        return SyntheticSpec(self.rows_per_chunk * self.workers, self.fraction, self.seed)

    @property
    def data_bytes(self) -> int:
        """Data processed by an iteration: rows × item sizes of both frames."""
        return 2 * self.spec.rows * self.spec.bytes_per_row

    @property
    def checked_after(self) -> frozenset[int]:
        """Which merges are verified, counted from the first warm-up: the last warm-up and the last one of all."""
        return frozenset({self.warmup - 1, self.warmup + self.iterations - 1} - {-1})

    def argv(self) -> list[str]:
        """The command line that `from_argv` reads."""
        plain = ("rows_per_chunk", "workers", "threads", "iterations", "warmup", "fraction", "seed")
        words = [f"--{name.replace('_', '-')}={getattr(self, name)}" for name in plain]
        return words + [f"--set={name}={value}" for name, value in self.options.items()]

    @staticmethod
    def from_argv(argv: Sequence[str]) -> Job:
        """Read what `argv` wrote."""
        parser = argparse.ArgumentParser(description="One peer of benchmarks/peers.py, in one process.")
        for name in ("rows-per-chunk", "workers", "threads", "iterations", "warmup", "seed"):
            parser.add_argument(f"--{name}", type=int, required=True)
        parser.add_argument("--fraction", type=float, required=True)
        parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
        found = vars(parser.parse_args(argv))
        options = dict(pair.split("=", 1) for pair in found.pop("set"))
        return Job(**found, options=options)


def workers_per_gpu(workers: int, gpus: int) -> int:
    """How many workers share a GPU where they are spread as evenly as can be; 1 without GPUs."""
    return -(-workers // gpus) if gpus else 1


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a peer answers.

    `wall_seconds`: one value a timed iteration. `rows`: of the result. `verified`: None where the peer is a program
    that does not let its result be looked at. `peak_rss_bytes`: high-water mark of the processes that hold the data,
    summed, verification left out; None where it cannot be known.
    """

    name: str
    version: str
    wall_seconds: list[float]
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
        raise PeerError("it ended without an answer")
    try:
        outcome = msgspec.json.decode(lines[-1], type=Outcome)
    except msgspec.DecodeError as error:
        raise PeerError(f"its answer cannot be read: {error}") from None
    if len(outcome.wall_seconds) != iterations:
        raise PeerError(f"it was asked for {iterations} iterations and answered with {len(outcome.wall_seconds)}")
    if not all(seconds > 0 for seconds in outcome.wall_seconds):
        raise PeerError("it answered with a time that is not above zero")
    return outcome


def serve(run: Callable[[Job], Outcome]) -> None:
    """The main function of a peer: read the job, do it, answer.

    SIGTERM, and the death of whoever started this process, end it the orderly way, so that what it started ends too.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, _leave)
    try:
        outcome = run(Job.from_argv(sys.argv[1:]))
    except MergeBenchError as error:
        print(f"{error}", file=sys.stderr)
        sys.exit(error.exit_status)
    print(msgspec.json.encode(outcome).decode(), flush=True)


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
