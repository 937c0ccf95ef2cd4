"""An index of the merges and commands in many results: what was read of a result that has ended is kept.

The index is one SQLite file in the user's cache; it can be deleted at any time. Levels that a person accepted are lines
that are only added to, in a file beside the results.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from merge_bench.analysis import comparable_runs
from merge_bench.analysis.aggregate import VerificationState, complete_launches, verification_state
from merge_bench.analysis.comparable_runs import RunPair, planned_run_pairs
from merge_bench.analysis.compare import (
    METRICS,
    Metric,
    effect_of_launches,
    metrics_of,
    metrics_of_command,
    side_of_run,
)
from merge_bench.analysis.statistics.verdict import noise_floor
from merge_bench.config.files import make_user_cache_folder, user_cache_folder
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign, Run
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import CommandMetric
from merge_bench.records.results_folder import ResultChange, ResultsFolder

Series: TypeAlias = Mapping[str, str | int | float]
"""The values by name that tell a series from all others: config, problem, engine, …"""

ACCEPTED_FILE = "accepted.jsonl"
_MOST_ACCEPTED_BYTES = 16 * 2**20

_VERSION = 5
"""The version of the index: one of another version is made anew."""
_SCHEMA = f"""
drop table if exists runs; drop table if exists results; drop table if exists properties;
create table results (root text, name text, state text, primary key (root, name)) without rowid;
create table runs (root text, name text, series text, entry blob,
    foreign key (root, name) references results on delete cascade);
create index of_series on runs (series, root);
create index of_result on runs (root, name);
create table properties (id text primary key, found blob) without rowid;
pragma user_version = {_VERSION};
"""
_INSIDE = "root in (select value from json_each(?))"
_FILE = "history.sqlite"
_APART = (
    "engine",
    "exchange",
    "distribution",
    "pipeline",
    "runtime_filter",
    "error_handling",
    "message_bytes",
    "stores",
    "shuffle",
    "threads",
    "ucx",
)
"""Options that make another series."""


class AcceptedLevelLine(msgspec.Struct, frozen=True, kw_only=True):
    """A level that a person accepted, a line in a file; `newest`: when the newest result known then began."""

    series: dict[str, str | int | float]
    newest: float
    metric: str
    level: float
    by: str
    reason: str
    time: float


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run by metric. `values`: one for each launch; `floors`: noise floors of A/A pairs.

    `command`: the metrics of a command, the main one first; None for a merge.
    """

    path: str
    started: float
    values: dict[str, list[float]]
    floors: dict[str, float]
    verified: bool
    wrong: bool
    properties: str
    command: list[CommandMetric] | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What was measured, the main metric first."""
        return METRICS if self.command is None else metrics_of_command(self.command)


class HistoryIndex:
    """The runs in results folders; reads what the index lacks. `problems`: which results could not be read, and why."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        self.roots = list(dict.fromkeys(str(Path(folder).resolve()) for folder in folders))
        try:
            self._roots = msgspec.json.encode(self.roots).decode()
        except UnicodeEncodeError:
            odd = next(root for root in self.roots if not root.isprintable())
            raise UsageError(f"the name of the folder {odd} is not UTF-8; rename it") from None
        try:
            file = make_user_cache_folder() / _FILE
            file.touch(mode=0o600)  # it is kept when it exists
            self._fill_database(file)
        except (OSError, RuntimeError, sqlite3.Error) as error:  # then it is in memory
            if type(error) is sqlite3.DatabaseError:  # it is damaged
                with contextlib.suppress(OSError):
                    (user_cache_folder() / _FILE).unlink()
            self._fill_database(":memory:")

    def list_series(self, name: str | None = None) -> list[dict[str, str | int | float]]:
        """List the series, those with the newest results first; `name`: only those of the result with this name."""
        wanted = f"{_INSIDE} and coalesce(?, name) = name group by series order by max(name) desc"
        rows = self._base.execute(f"select series from runs where {wanted}", [self._roots, name])
        return [msgspec.json.decode(text, type=dict[str, str | int | float]) for (text,) in rows]

    def runs_of_series(self, series: Series) -> list[RunFigures]:
        """List the runs of a series, the oldest first."""
        wanted = [self._roots, _series_json(series)]
        rows = self._base.execute(f"select entry from runs where {_INSIDE} and series = ?", wanted)
        decode = msgspec.msgpack.Decoder(RunFigures).decode
        return sorted((decode(figures) for (figures,) in rows), key=lambda run: (run.started, run.path))

    def metrics_of_series(self, series: Series) -> tuple[Metric, ...]:
        """Return the metrics of a series, those of its newest result, the main one first."""
        runs = self.runs_of_series(series)
        return runs[-1].metrics if runs else METRICS

    def properties_of_run(self, run: RunFigures) -> comparable_runs.Properties:
        """Return the properties of a run that must not differ between runs that are compared."""
        ((document,),) = self._base.execute("select found from properties where id = ?", [run.properties])
        return msgspec.json.decode(document, type=dict[str, dict[str, str]])

    def _fill_database(self, place: Path | str) -> None:
        """Open the database at `place`, and read into it what changed in the folders."""
        self._base = _open_index_database(place)
        self.problems: list[str] = []
        for root in self.roots:
            self._update_folder(root)
        self.accepted, problems = read_accepted_levels(self.roots)
        self.problems += problems

    def _update_folder(self, root: str) -> None:
        states = dict(self._base.execute("select name, state from results where root = ?", [root]))
        try:
            for change in ResultsFolder(root).find_changed_results(states):
                self._base.execute("delete from results where root = ? and name = ?", [root, change.name])
                if change.records is not None:
                    self._add_result(root, change)
                self._base.commit()  # others may use the index meanwhile
        except OSError as error:
            raise UsageError(f"cannot read the folder {root}: {error.strerror}") from error

    def _add_result(self, root: str, change: ResultChange) -> None:
        try:
            campaign = read_campaign(Path(root, change.name))
        except UsageError as error:
            self.problems.append(str(error))
            return
        well = campaign.end is not None and campaign.end.status == 0  # another one may be resumed
        result = [root, change.name, change.final if well else change.state]
        self._base.execute("insert into results values (?, ?, ?)", result)
        for series, document, figures in _indexed_runs(campaign):
            self._base.execute("insert or ignore into properties values (?, ?)", [figures.properties, document])
            row = [root, change.name, series, msgspec.msgpack.encode(figures)]
            self._base.execute("insert into runs values (?, ?, ?, ?)", row)


def _open_index_database(place: Path | str) -> sqlite3.Connection:
    base = sqlite3.connect(place, timeout=60)
    base.executescript("pragma journal_mode = wal; pragma synchronous = normal; pragma foreign_keys = on")
    if base.execute("pragma user_version").fetchone() != (_VERSION,):
        base.execute("begin immediate")  # another process may have made it meanwhile
        if base.execute("pragma user_version").fetchone() != (_VERSION,):
            for statement in _SCHEMA.split(";"):
                base.execute(statement)
        base.commit()
    return base


def _indexed_runs(campaign: Campaign) -> Iterator[tuple[str, bytes, RunFigures]]:
    """Yield the series, properties and figures of each run of a campaign; nothing of probes, tunings and imports."""
    if campaign.probe is not None or campaign.head.imported_from is not None:
        return
    calibrations = [pair for pair in planned_run_pairs(campaign) if pair.is_aa_comparison]
    for run in campaign.runs:
        state = verification_state(run, complete_launches(run))
        values = {metric.name: side_of_run(run, metric).values for metric in metrics_of([run])}
        if run.plan.tune is not None or not (any(values.values()) or state is VerificationState.WRONG):
            continue
        described = {kind: dict(values) for kind, values in comparable_runs.run_properties(campaign, run).items()}
        series = _series_key(run, described)
        document = msgspec.json.encode(described, order="deterministic")
        figures = RunFigures(
            path=str(campaign.folder.resolve()),
            started=campaign.head.time,
            values=values,
            floors=_noise_floors(run, calibrations),
            verified=state is VerificationState.VERIFIED,
            wrong=state is VerificationState.WRONG,
            properties=hashlib.blake2b(document, digest_size=16).hexdigest(),
            command=None if run.plan.command is None else run.plan.command.metrics,
        )
        yield _series_json(series), document, figures


def _series_key(run: Run, described: dict[str, dict[str, str]]) -> Series:
    """Return what results of one series have in common; names the GPUs' drivers in `described`."""
    machine = described.setdefault(comparable_runs.MACHINE, {})
    workers = [worker for launch in run.launches if launch.line is not None for worker in launch.line.workers]
    gpus = [gpu for worker in workers for gpu in worker.hardware.gpus or ()]
    machine.pop("gpus", None)
    machine |= comparable_runs.joined_values({"GPUs": gpu.name, "GPU driver": gpu.driver_version} for gpu in gpus)
    in_common: dict[str, Any] = {
        **comparable_runs.distinguishing_values(values := comparable_runs.problem_values(run), values),
        "hosts": len({worker.host for worker in workers}),
        **{name: run.options.get(name) for name in _APART},
        **{name: machine.get(name) for name in ("cpu_model", "GPUs")},
    }
    return {"config": run.config.name} | {
        name: value if isinstance(value, (int, float)) and value is not True else comparable_runs.value_text(value)
        for name, value in in_common.items()
        if value not in (None, False, "shuffle")
    }


def _noise_floors(run: Run, calibrations: Sequence[RunPair]) -> dict[str, float]:
    """By metric, the noise floor that an A/A comparison with this run shows, if there is one."""
    floors: dict[str, float] = {}
    for pair, metric in itertools.product(calibrations, metrics_of([run])):
        old, new = pair.baseline.run, pair.candidate.run
        if run in (old, new):
            effect, _ = effect_of_launches(
                side_of_run(old, metric), side_of_run(new, metric), metric, one_campaign=True
            )
            floors |= {metric.name: noise_floor(effect)} if effect is not None else {}
    return floors


def _series_json(series: Series) -> str:
    """The series as JSON with sorted keys, its key in the index."""
    return msgspec.json.encode(series, order="deterministic").decode()


def read_accepted_levels(roots: Sequence[str]) -> tuple[list[AcceptedLevelLine], list[str]]:
    """The levels accepted in these results folders, the oldest first, and sentences about what could not be read."""
    accepted: list[AcceptedLevelLine] = []
    problems = []
    decode = msgspec.json.Decoder(AcceptedLevelLine).decode
    for root in roots:
        path = Path(root, ACCEPTED_FILE)
        try:
            lines = _read_accepted_bytes(path).splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"cannot read {path}: {error.strerror}; accepted levels are not known")
            continue
        for number, line in enumerate(lines, 1):
            try:
                accepted.append(decode(line))
            except msgspec.MsgspecError:
                problems.append(f"{path}, line {number}: no accepted level; it is left out")
    return sorted(accepted, key=lambda each: each.time), problems


def append_accepted_level(root: str, accepted: AcceptedLevelLine) -> None:
    """Add an accepted level to the file of a results folder, and wait until it is on the disk; follow no link.

    Raises UsageError if the file cannot be written; its earlier lines stay.
    """
    path = Path(root, ACCEPTED_FILE)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            _check_regular_file(descriptor)
            size = os.fstat(descriptor).st_size
            whole = not size or os.pread(descriptor, 1, size - 1) == b"\n"
            text = (b"" if whole else b"\n") + msgspec.json.encode(accepted) + b"\n"
            if os.write(descriptor, text) != len(text):
                os.ftruncate(descriptor, size)
                raise OSError(28, os.strerror(28))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _read_accepted_bytes(path: Path) -> bytes:
    """The first `_MOST_ACCEPTED_BYTES` of a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        _check_regular_file(descriptor)
        return file.read(_MOST_ACCEPTED_BYTES)


def _check_regular_file(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(22, "it is no regular file")
