"""What the words and numbers of reports mean, in one table: pages show them where the words stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """A word, the unit that people see it in (empty: none), and what it means in a sentence or two."""

    term: str
    unit: str
    text: str

    def __str__(self) -> str:
        return f"{self.term}{f' ({self.unit})' if self.unit else ''}: {self.text}"


_TABLE = (
    ("worker", "",
     "A process that holds one chunk of each frame: one per GPU, or one per share of the CPU. Its rank is "
     "0..W-1."),
    ("chunk", "rows", "The rows of one frame that start on one worker."),
    ("iteration", "", "One whole merge between two barriers: partition, exchange, join on every worker."),
    ("launch", "",
     "One life of the cluster's processes. UCX reads its settings once per process, so a launch has one config; "
     "it is the unit of all statistics."),
    ("block", "", "Launches that were made together in random order; configs are compared within blocks."),
    ("campaign", "", "A set of launches of one or more configs in one results folder."),
    ("config", "", "The environment that a launch runs under, from a .cfg file."),
    ("engine", "", "The dataframe library on a worker: cudf, polars or pandas."),
    ("exchange", "", "What carries the frames: ucx, endpoints between workers; or dask, Dask's own shuffle."),
    ("data processed", "GiB", "Bytes of all left and right chunks: what an iteration works on."),
    ("wall", "s",
     "The longest time of any worker from leaving the opening barrier to its own end, each on its own clock."),
    ("throughput", "GiB/s", "Data processed ÷ wall."),
    ("bandwidth", "GiB/s",
     "Of a worker and a frame: bytes sent to other workers ÷ seconds in which that frame's transfers were in "
     "flight; of a worker: (left + right) ÷ 2; over workers: the harmonic mean. A worker's own share never "
     "counts."),
    ("link limit", "GiB/s",
     "What the same workers exchange with no partition and no join, measured in the same launch; median of at "
     "least 5 rounds."),
    ("fraction of link", "%", "Bytes of both frames ÷ the time in which either was in flight ÷ link limit."),
    ("partition", "ms", "A worker's time for dealing its rows out by the hash of their keys."),
    ("exchange phase", "ms", "A worker's time for sending its rows to the others and receiving theirs."),
    ("join", "ms", "A worker's time for joining what it holds after the exchange."),
    ("overlap", "ms", "Time in which partition and exchange ran at once; it is counted in both phases."),
    ("pair", "GiB/s", "Bytes from one worker to another ÷ seconds in which they were in flight."),
    ("lanes", "",
     "The transports that UCX selected for a pair of workers, as tcp/eth0 or cuda_ipc/cuda. Selected does not "
     "mean that they carried the bytes."),
    ("peak memory", "GiB",
     "High-water mark of a worker's process, verification excluded. Above imports: minus what it held after its "
     "imports."),
    ("verified", "",
     "Every check of the merge's result that was asked for was made, and all were right. No number counts "
     "without it."),
    ("warnings", "", "What spoils or explains a number, each with what helps."),
    ("median", "", "Over launches; a launch's value is the median over its timed iterations."),
    ("interval", "",
     "Range that holds the true median with 95 % confidence, from the ranks of the launches; there is none for "
     "fewer than 6."),
    ("speed-up", "×",
     "Candidate ÷ baseline so that more than 1 is better, for every metric; paired by block where both were "
     "interleaved."),
    ("verdict", "",
     "FASTER, SLOWER, EQUIVALENT within the threshold, or INCONCLUSIVE; FAILED and WRONG candidates cannot win."),
    ("threshold", "%", "The least difference that matters; the noise floor, if that is higher."),
    ("latency", "µs", "Time of one message of this size, one way, as the test defines it."),
    ("message size", "B", "Bytes of one message, or of the whole vector."),
    ("published", "", "A result of others, on another machine: shown beside yours, never compared with it."),
    ("status", "",
     "done: ended well; running: somebody writes it on this machine; unfinished: no end was recorded, so it was "
     "killed or runs on another machine."),
    ("screen", "",
     "Tuning's first step: each setting by itself against the baseline, with the baseline against itself beside "
     "it."),
    ("race", "", "Tuning's second step: what survived, in more and more blocks, until it is clear."),
    ("ablation", "", "Tuning's last step but one: each setting is taken out again; one that does not help is dropped."),
)  # fmt: skip

DEFINITIONS: Mapping[str, Definition] = {term: Definition(term, unit, text) for term, unit, text in _TABLE}
"""By term."""
