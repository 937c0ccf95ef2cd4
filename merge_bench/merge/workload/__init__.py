"""The tables that are merged: a registry of this folder, one file a workload.

A workload's file has a constant ``WORKLOAD = Workload(…)`` with literal arguments. They are read from the source text,
so that listing the workloads imports none of them. The values and the help of ``--workload``, ``--question`` and
``--rows`` come from these descriptions.

To add one: a file with such a constant and a `Benchmark` of `benchmarks.py`, which makes its tables once, as Parquet
files. DuckDB gives the expected result.

Here is also what determines the synthetic tables and what is expected of their merge, which plans and drivers read
without numba; `synthetic.py` makes and checks the rows.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.merge import read_registry

if TYPE_CHECKING:
    from merge_bench.merge.frame import Field

AUTO = "auto"
KEY = "key"  # the name of the key column of synthetic tables


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The properties of a workload, as its file in this folder declares them."""

    name: str  # in `--workload`, and of its file
    help: str  # what its tables are, in a few words of the option's help
    place: int  # its position in lists
    attribute: str | None = None
    """The name of its `Benchmark`, whose tables are made by name. None: workers generate rows, or read given files."""
    questions: str = ""  # the values of `--question` that it has, for the help; without a benchmark: none
    default: str = ""  # the questions of a run that names none, for the help
    rows: int = 0  # rows of its left table, if `--rows` sets another number; 0: `--rows` is refused


def workloads() -> tuple[Workload, ...]:
    """All workloads, in the order in which they are shown."""
    members = read_registry(tuple(__path__), "WORKLOAD", Workload)
    return tuple(sorted(members, key=lambda workload: (workload.place, workload.name)))


def benchmark_workload_names() -> tuple[str, ...]:
    """Return the names of the workloads that are benchmarks, which have questions."""
    return tuple(workload.name for workload in workloads() if workload.attribute is not None)


def resizable_workload_names() -> tuple[str, ...]:
    """Return the names of the workloads whose tables ``--rows`` makes smaller or larger."""
    return tuple(workload.name for workload in workloads() if workload.rows)


def import_benchmark(name: str) -> Any:
    """Import the workload called `name`, and return its `Benchmark`; None if the workload is not a benchmark."""
    attribute = next((workload.attribute for workload in workloads() if workload.name == name), None)
    if attribute is None:
        return None
    return getattr(importlib.import_module(f"{__name__}.{name}"), attribute)


def workload_choices() -> tuple[str, ...]:
    """Return all values of ``--workload``: ``auto`` and the names of the workloads."""
    return (AUTO, *(workload.name for workload in workloads()))


def workload_option_help() -> str:
    """Return the help text of ``--workload``: a few words about each workload, and the meaning of ``auto``."""
    lines = "; ".join(f"{workload.name}: {workload.help}" for workload in workloads())
    return f"Tables to merge. {lines}; {AUTO}: tables if --left and --right are given, else synthetic."


def question_option_help() -> str:
    """Return the help text of ``--question``: the questions of each benchmark, and the default ones."""
    benchmarks = [workload for workload in workloads() if workload.attribute is not None]
    questions = " or ".join(f"{each.name} ({each.questions})" for each in benchmarks)
    defaults = "; ".join(f"{each.name}: {each.default}" for each in benchmarks)
    return f"Questions of --workload {questions}. Several values make a sweep. [{defaults}]"


def rows_option_help() -> str:
    """Return the help text of ``--rows``: the workloads whose size it sets, and their default sizes."""
    defaults = "; ".join(f"{each.name}: {each.rows:,}" for each in workloads() if each.rows)
    return f"Rows of the left table of --workload {' or '.join(resizable_workload_names())}. [{defaults}]"


@dataclass(frozen=True)
class SyntheticSpec:
    """The parameters that determine both synthetic tables.

    `rows`: of each frame. `fraction`: of right rows that match. `zipf`: exponent of the skew, 0 for none.
    """

    rows: int
    fraction: float
    seed: int
    payload_columns: int = 1
    zipf: float = 0.0

    @property
    def matching_rows(self) -> int:
        """The number of right rows that match a left row: the rows of an inner merge's result."""
        return round(self.fraction * self.rows)

    @property
    def hottest_key_share(self) -> float:
        """The fraction of the matching right rows that have the most frequent key."""
        if self.zipf == 0.0:
            return 1 / max(self.matching_rows, 1)
        exponent = 1.0 - self.zipf
        if exponent == 0.0:
            return math.log(2.0) / math.log(self.rows + 1.0)
        return float((2.0**exponent - 1.0) / ((self.rows + 1.0) ** exponent - 1.0))

    def fields(self, side: str) -> tuple[Field, ...]:
        """The fields of ``left`` or ``right``: key and payload columns, all int64."""
        import pyarrow as pa

        from merge_bench.merge.frame import Field

        names = [KEY] + [f"{side}_payload_{k}" for k in range(self.payload_columns)]
        return tuple(Field(name, pa.int64(), 8) for name in names)

    @property
    def bytes_per_row(self) -> int:
        return 8 * (1 + self.payload_columns)


@dataclass(frozen=True)
class ExpectedWorkerResult:
    """The result rows that one worker expects: their number and checksum, to be added up over the workers."""

    rows: int
    checksum: int
