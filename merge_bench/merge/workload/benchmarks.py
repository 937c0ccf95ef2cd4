"""Benchmarks: named questions, each a merge of two tables, and Parquet files that are made once.

`tpch.py` and `h2o.py` are benchmarks.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.config.files import open_without_links
from merge_bench.config.options import TableOptions
from merge_bench.config.parsers import suggest_similar_names
from merge_bench.errors import UsageError
from merge_bench.merge.workload.tables import TableSpec, plan_tables
from merge_bench.units import format_bytes

Make = Callable[[Path, Sequence[str]], object]
"""Writes the files of the tables with these names to a folder."""


@dataclass(frozen=True)
class BenchmarkQuestion:
    """A question of a benchmark: the merge of two of its tables.

    `how`: a value of ``--how``, None if any is allowed.
    """

    name: str
    left: str
    right: str
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, as a value of ``--workload``: named questions, each a merge of two tables.

    `default`: the questions of a run that names none. `make`: returns the Parquet files of the tables with these names,
    and generates them according to the options if they do not exist.
    """

    name: str
    questions: tuple[BenchmarkQuestion, ...]
    default: tuple[str, ...]
    make: Callable[[TableOptions, Sequence[str]], Sequence[Path]]

    def choose_questions(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the full names of the questions (``3`` is ``q3``); without names, the default questions.

        Raises `UsageError` if there is no such question, or one is named twice.
        """
        all_names = [question.name for question in self.questions]
        chosen = [f"q{name}" if name.isdigit() else name.lower() for name in names]
        for name in chosen:
            if name not in all_names:
                hint = suggest_similar_names(name, all_names) or f"; choose from {', '.join(all_names)}"
                raise UsageError(f"--workload {self.name} has no question {name!r}{hint}")
            if chosen.count(name) > 1:
                raise UsageError(f"--question names {name} twice")
        return tuple(chosen) or self.default

    def find_question(self, name: str) -> BenchmarkQuestion:
        return next(question for question in self.questions if question.name == name)

    def plan_question(self, name: str, options: TableOptions, workers: int, engine: str) -> TableSpec:
        """Plan the merge of the question called `name` for so many workers; missing tables are generated.

        There is no warning about few row groups: only tables with few rows have them, which the generator decides. The
        tables have no fingerprint: their paths name benchmark, size and version, and another release of Arrow writes
        other bytes.
        """
        question = self.find_question(name)
        left, right = map(str, self.make(options, (question.left, question.right)))
        spec = plan_tables(left, right, question.left_on, question.right_on, workers, engine, options.columns)
        spec = replace(spec, left=replace(spec.left, fingerprint=""), right=replace(spec.right, fingerprint=""))
        return replace(spec, warnings=(), benchmark=self.name, question=name)


def make_tables_once(
    description: str, target_folder: Path, names: Sequence[str], make_tables: Make, disk_bytes: int, size_option: str
) -> tuple[Path, ...]:
    """Return the paths ``target_folder/<name>.parquet``, after making the files that do not exist.

    A file exists only when it is complete: `make_tables` writes it to a folder beside `target_folder`, from where it is
    moved. An interrupted generation is repeated, and of several processes at once one makes the files and the others
    wait.

    `description`: the benchmark and its size, for messages. `disk_bytes`: estimated bytes of all files of the
    benchmark. `size_option`: the option that makes them smaller.

    Raises `UsageError` if the disk is too small, or cannot be written to.
    """
    paths = {name: target_folder / f"{name}.parquet" for name in names}
    folder = target_folder.parent
    try:
        if not _missing_tables(paths):
            return tuple(paths.values())
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f".{target_folder.name}.lock", "w", opener=open_without_links) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it ends
            if missing := _missing_tables(paths):
                for stale in folder.glob(f".{target_folder.name}.tmp-*"):
                    shutil.rmtree(stale, ignore_errors=True)
                free = shutil.disk_usage(folder).free
                if disk_bytes > free:
                    raise UsageError(
                        f"{description} needs about {format_bytes(disk_bytes)}, but {folder} has {format_bytes(free)}"
                        f" free; use a smaller {size_option}, or set XDG_CACHE_HOME to another folder"
                    )
                _make_tables(make_tables, missing, folder / f".{target_folder.name}.tmp-{os.getpid()}", target_folder)
    except OSError as error:
        raise UsageError(f"cannot write the tables of {description} to {folder}: {error.strerror or error}") from None
    return tuple(paths.values())


def _missing_tables(paths: Mapping[str, Path]) -> list[str]:
    return [name for name, path in paths.items() if not path.is_file()]


def _make_tables(make_tables: Make, names: Sequence[str], temporary_folder: Path, target_folder: Path) -> None:
    """Make tables in a temporary folder, and move them to the target."""
    temporary_folder.mkdir()
    try:
        make_tables(temporary_folder, names)
        target_folder.mkdir(exist_ok=True)
        for name in names:
            os.replace(temporary_folder / f"{name}.parquet", target_folder / f"{name}.parquet")
    finally:
        shutil.rmtree(temporary_folder, ignore_errors=True)
