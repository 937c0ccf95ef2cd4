"""An index of the merges and commands in many results: what was read of a result that has ended is kept.

The index is one SQLite file in the user's cache; it can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sqlite3
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
    common_metrics,
    comparison_side,
    estimate_candidate_effect,
    metrics_of_command,
)
from merge_bench.analysis.statistics.verdict import noise_floor
from merge_bench.config.files import make_user_cache_folder, user_cache_folder
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign, Run
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import CommandMetric
from merge_bench.records.results_folder import ResultChange, ResultsFolder
from merge_bench.regressions.accepted_levels import read_accepted_levels
from merge_bench.view.titles import merged_tables_text

Series: TypeAlias = Mapping[str, str | int | float]
"""The values by name that tell a series from all others: config, problem, engine, …"""


_VERSION = 6
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


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run in the index. `values`: by metric, one for each launch; `floors`: noise floors by metric.

    `command`: the metrics of a command, the main one first; None for a merge. `tables`: the merged tables of files, as
    text; empty for others.
    """

    path: str
    started: float
    values: dict[str, list[float]]
    floors: dict[str, float]
    verified: bool
    wrong: bool
    properties: str
    command: list[CommandMetric] | None = None
    tables: str = ""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the run, the main one first."""
        return METRICS if self.command is None else metrics_of_command(self.command)


class HistoryIndex:
    """An index of the runs in results folders, which is brought up to date when it is made.

    `problems`: which results could not be read, and why.
    """

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
            self._update_database(file)
        except (OSError, RuntimeError, sqlite3.Error) as error:  # then it is in memory
            if type(error) is sqlite3.DatabaseError:  # it is damaged
                with contextlib.suppress(OSError):
                    (user_cache_folder() / _FILE).unlink()
            self._update_database(":memory:")

    def list_series(self, result_name: str | None = None) -> list[dict[str, str | int | float]]:
        """List the series, those with the newest results first; `result_name`: only the series of this result."""
        wanted = f"{_INSIDE} and coalesce(?, name) = name group by series order by max(name) desc"
        rows = self._base.execute(f"select series from runs where {wanted}", [self._roots, result_name])
        return [msgspec.json.decode(text, type=dict[str, str | int | float]) for (text,) in rows]

    def runs_of_series(self, series: Series) -> list[RunFigures]:
        """List the runs of a series, the oldest first."""
        wanted = [self._roots, _series_json(series)]
        rows = self._base.execute(f"select entry from runs where {_INSIDE} and series = ?", wanted)
        decode = msgspec.msgpack.Decoder(RunFigures).decode
        return sorted((decode(figures) for (figures,) in rows), key=lambda run: (run.started, run.path))

    def metrics_of_series(self, series: Series) -> tuple[Metric, ...]:
        """Return the metrics of the newest result of a series, the main one first."""
        runs = self.runs_of_series(series)
        return runs[-1].metrics if runs else METRICS

    def tables_of_series(self, series: Series) -> str:
        """Return the text of the tables that the newest result of a series merged; empty without tables of files."""
        wanted = f"{_INSIDE} and series = ? order by name desc limit 1"
        rows = self._base.execute(f"select entry from runs where {wanted}", [self._roots, _series_json(series)])
        return next((msgspec.msgpack.decode(figures, type=RunFigures).tables for (figures,) in rows), "")

    def properties_of_run(self, run: RunFigures) -> comparable_runs.Properties:
        """Return the properties of a run: its config, machine, versions, … by kind and name."""
        ((document,),) = self._base.execute("select found from properties where id = ?", [run.properties])
        return msgspec.json.decode(document, type=dict[str, dict[str, str]])

    def _update_database(self, database_path: Path | str) -> None:
        """Open the database at `database_path`, and update it with the results that changed in the folders."""
        self._base = _open_index_database(database_path)
        self.problems: list[str] = []
        for root in self.roots:
            self._index_results_folder(root)
        self.accepted, problems = read_accepted_levels(self.roots)
        self.problems += problems

    def _index_results_folder(self, results_folder: str) -> None:
        states = dict(self._base.execute("select name, state from results where root = ?", [results_folder]))
        try:
            for change in ResultsFolder(results_folder).find_changed_results(states):
                self._base.execute("delete from results where root = ? and name = ?", [results_folder, change.name])
                if change.records is not None:
                    self._index_result(results_folder, change)
                self._base.commit()  # others may use the index meanwhile
        except OSError as error:
            raise UsageError(f"cannot read the folder {results_folder}: {error.strerror}") from error

    def _index_result(self, results_folder: str, result_change: ResultChange) -> None:
        try:
            campaign = read_campaign(Path(results_folder, result_change.name))
        except UsageError as error:
            self.problems.append(str(error))
            return
        well = campaign.end is not None and campaign.end.status == 0  # another one may be resumed
        result = [results_folder, result_change.name, result_change.final if well else result_change.state]
        self._base.execute("insert into results values (?, ?, ?)", result)
        for series, document, figures in _make_index_rows(campaign):
            self._base.execute("insert or ignore into properties values (?, ?)", [figures.properties, document])
            row = [results_folder, result_change.name, series, msgspec.msgpack.encode(figures)]
            self._base.execute("insert into runs values (?, ?, ?, ?)", row)


def _open_index_database(database_path: Path | str) -> sqlite3.Connection:
    base = sqlite3.connect(database_path, timeout=60)
    base.executescript("pragma journal_mode = wal; pragma synchronous = normal; pragma foreign_keys = on")
    if base.execute("pragma user_version").fetchone() != (_VERSION,):
        base.execute("begin immediate")  # another process may have made it meanwhile
        if base.execute("pragma user_version").fetchone() != (_VERSION,):
            for statement in _SCHEMA.split(";"):
                base.execute(statement)
        base.commit()
    return base


def _make_index_rows(campaign: Campaign) -> Iterator[tuple[str, bytes, RunFigures]]:
    """Yield the series (JSON), properties (JSON) and figures of each run of a campaign.

    Probes, tunings and imported results yield nothing.
    """
    if campaign.probe is not None or campaign.head.imported_from is not None:
        return
    aa_pairs = [pair for pair in planned_run_pairs(campaign) if pair.is_aa_comparison]
    for run in campaign.runs:
        state = verification_state(run, complete_launches(run))
        values = {metric.name: comparison_side(run, metric).launch_values for metric in common_metrics([run])}
        if run.plan.tune is not None or not (any(values.values()) or state is VerificationState.WRONG):
            continue
        properties = {kind: dict(values) for kind, values in comparable_runs.run_properties(campaign, run).items()}
        series = _series_key(run, properties)
        document = msgspec.json.encode(properties, order="deterministic")
        figures = RunFigures(
            path=str(campaign.folder.resolve()),
            started=campaign.head.time,
            values=values,
            floors=_noise_floors(run, aa_pairs),
            verified=state is VerificationState.VERIFIED,
            wrong=state is VerificationState.WRONG,
            properties=hashlib.blake2b(document, digest_size=16).hexdigest(),
            command=None if run.plan.command is None else run.plan.command.metrics,
            tables=merged_tables_text(run.plan),
        )
        yield _series_json(series), document, figures


def _series_key(run: Run, properties: dict[str, dict[str, str]]) -> Series:
    """Return the values that results of one series have in common; adds the drivers of GPUs to `properties`."""
    machine = properties.setdefault(comparable_runs.MACHINE, {})
    workers = [worker for launch in run.launches if launch.line is not None for worker in launch.line.workers]
    gpus = [gpu for worker in workers for gpu in worker.hardware.gpus or ()]
    machine.pop("gpus", None)
    machine |= comparable_runs.join_values_by_name({"GPUs": gpu.name, "GPU driver": gpu.driver_version} for gpu in gpus)
    in_common: dict[str, Any] = {
        **comparable_runs.distinguishing_values(values := comparable_runs.problem_definition(run), values),
        "hosts": len({worker.host for worker in workers}),
        **{name: run.options.get(name) for name in _APART},
        **{name: machine.get(name) for name in ("cpu_model", "GPUs")},
    }
    return {"config": run.config.name} | {
        name: value
        if isinstance(value, (int, float)) and value is not True
        else comparable_runs.format_property_value(value)
        for name, value in in_common.items()
        if value not in (None, False, "shuffle")
    }


def _noise_floors(run: Run, aa_pairs: Sequence[RunPair]) -> dict[str, float]:
    """The noise floors that A/A comparisons with this run show, by metric; metrics without one are left out."""
    floors: dict[str, float] = {}
    for pair, metric in itertools.product(aa_pairs, common_metrics([run])):
        old, new = pair.baseline.run, pair.candidate.run
        if run in (old, new):
            effect, _ = estimate_candidate_effect(
                comparison_side(old, metric), comparison_side(new, metric), metric, one_campaign=True
            )
            floors |= {metric.name: noise_floor(effect)} if effect is not None else {}
    return floors


def _series_json(series: Series) -> str:
    """A series as JSON with sorted keys, which is its key in the index."""
    return msgspec.json.encode(series, order="deterministic").decode()
