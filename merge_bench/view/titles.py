"""Titles of results for people: config, problem, date and host, not the name of a folder; where a launch failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePath

import msgspec

from merge_bench.analysis.comparable_runs import PARTITION_WRITE_NAMES, PARTITION_WRITES, result_letter
from merge_bench.config.parsers import quote_name
from merge_bench.merge import engines
from merge_bench.merge.exchange import find_recorded_plane
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.recorded_plan import CommandPlan, RecordedPlan, RecordedTable, RecordedWorkload, is_tuning
from merge_bench.records.results_folder import ResultEntry
from merge_bench.records.schema import CampaignLine, FailureLine, Worker
from merge_bench.records.writer import LOGS
from merge_bench.units import count_with_noun, plural_noun
from merge_bench.view.plot import Chart
from merge_bench.view.text import format_row_count, mark_unprintable, shorten_middle

_MOST_NAMES = _MOST_HOSTS = 3
_MOST_LINES = 4
_VERSION = re.compile(r"\bUCX (\d[\w.]*)")


def title_of_campaign(
    campaign_line: CampaignLine, plans: Sequence[RecordedPlan], measured_plans: Collection[int] = ()
) -> str:
    """The title of a campaign: ``default and tcp: 1,000,000 rows per chunk, 2 workers``, or ``Tuning of default: …``.

    Of a command the title has its words: ``default and tcp: mpirun -n 2 osu_bw``. `measured_plans`: the indexes of the
    plans that a tuning has measured.
    """
    configs = join_names_in_words(config.name for config in campaign_line.configs)
    what = next((plan.probe for plan in plans if plan.probe is not None), None)
    imported = " (imported)" if campaign_line.imported_from is not None else ""
    if what is not None:
        return f"Network measurement {what}: {configs}{imported}"
    first = f"Tuning of {configs}" if is_tuning(plans) else configs
    return f"{first}: {measured_workload_text(plans, measured_plans)}{imported}"


def title_of_result_entry(entry: ResultEntry, measured_plans: Collection[int] = ()) -> str:
    """The title of a campaign in a results folder; the folder's name if the first line of records cannot be read."""
    return entry.folder.name if entry.head is None else title_of_campaign(entry.head, entry.plans, measured_plans)


def is_tuning_campaign(campaign: Campaign) -> bool:
    """Whether a campaign is a tuning, even one without a step yet."""
    return bool(campaign.tuning) or is_tuning(campaign.plans)


def measured_workload_text(plans: Sequence[RecordedPlan], measured_plans: Collection[int]) -> str:
    """What a campaign merges, as text; of a tuning, only the plans with the indexes `measured_plans`."""
    if not is_tuning(plans):
        return workload_text(plans)
    launched = [plan for at, plan in enumerate(plans) if at in measured_plans]
    return workload_text(
        launched or [msgspec.structs.replace(plan, rows_per_chunk=None, workload=None) for plan in plans]
    )


def workload_text(plans: Sequence[RecordedPlan]) -> str:
    """What plans merge, and with how many workers: ``1,000,000 rows per chunk, 2 workers``; or the command."""
    if commands := dict.fromkeys(shell_command_text(plan.command) for plan in plans if plan.command is not None):
        return ", ".join(commands)
    questions = _benchmark_question_texts(plans)
    tables = questions or dict.fromkeys(merged_tables_text(plan) for plan in plans)
    workers = sorted({plan.workers for plan in plans if plan.workers is not None})
    sizes = sorted({plan.rows_per_chunk for plan in plans if plan.rows_per_chunk is not None})
    joins = dict.fromkeys(f"{plan.how} join" for plan in plans if plan.how not in (None, "inner"))
    parts = [join_names_in_words(joins)] if joins and not questions else []
    parts += [f"{join_names_in_words(map(format_row_count, sizes))} rows per chunk"] if sizes else []
    parts += [text for text in tables if text]
    parts += (
        [f"{join_names_in_words(map(str, workers))} {'worker' if workers == [1] else 'workers'}"] if workers else []
    )
    return ", ".join(parts) or "problem not recorded"


def shell_command_text(command: CommandPlan, letters: int = 72) -> str:
    """A command as one line of a shell, of a long one its beginning and end: ``mpirun -n 2 osu_bw``."""
    return shorten_middle(mark_unprintable(" ".join(command.shell_line.split())), letters)


def _benchmark_question_texts(plans: Sequence[RecordedPlan]) -> list[str]:
    """``h2o q1, q2 and q3 (10,000,000 rows)``, alone in a list, if plans are questions of one benchmark; else empty."""
    questions = dict.fromkeys(plan.question for plan in plans)
    benchmarks = {each.partition(" ")[0] for each in questions}
    if len(questions) < 2 or "" in benchmarks or len(benchmarks) > 1:
        return []
    *others, last = (each.partition(" ")[2] for each in questions)
    tables = (table for plan in plans if (work := plan.workload) for table in (work.left, work.right))
    largest = max(((table and table.rows) or 0 for table in tables), default=0)
    return [f"{benchmarks.pop()} {', '.join(others)} and {last} ({format_row_count(largest)} rows)"]


def unusual_engine_names_text(plans: Sequence[RecordedPlan]) -> str:
    """The engines of `plans`, such as ``engine duckdb``, if one is not the choice of ``auto``; else empty."""
    usual = True
    for plan in plans:
        dask = not find_recorded_plane(plan.exchange).workers_exchange_rows
        choices = {engines.default_engine(device_memory=device, needs_dask=dask).name for device in (False, True)}
        usual = usual and plan.engine in {*choices, None, ""}
    used = dict.fromkeys(plan.engine for plan in plans if plan.engine)
    return "" if usual else f"{plural_noun(len(used), 'engine')} {join_names_in_words(used)}"


def merged_tables_text(plan: RecordedPlan) -> str:
    """The tables of a plan: ``orders.parquet ⋈ lines.parquet on o_key = l_key (15,000 / 60,000 rows)``; or empty.

    The question of a benchmark, with a colon, stands before the tables.
    """
    work = plan.workload
    if work is None or work.left is None or work.right is None:
        return ""
    counts = " / ".join(format_row_count(table.rows) for table in (work.left, work.right))
    question = f"{plan.question}: " if plan.question else ""
    return f"{question}{_joined_file_names(work.left, work.right)} on {merge_keys_text(work) or '?'} ({counts} rows)"


def plan_workload_text(campaign: Campaign, plan_index: int) -> str:
    """What one plan of a campaign merges, for short: rows per chunk, the question or the tables; or its command.

    `plan_index`: the plan's index in the campaign.
    """
    recorded = campaign.plans[plan_index] if plan_index < len(campaign.plans) else RecordedPlan()
    work = recorded.workload
    if recorded.command is not None:
        return shell_command_text(recorded.command)
    if recorded.rows_per_chunk is not None:
        return f"{format_row_count(recorded.rows_per_chunk)} rows per chunk"
    if recorded.question or work is None or work.left is None or work.right is None:
        return recorded.question or "size not recorded"
    return _joined_file_names(work.left, work.right)


def _joined_file_names(*tables: RecordedTable) -> str:
    return " ⋈ ".join(PurePath(table.path).name if table.path else "?" for table in tables)


def plan_option_text(name: str, value: object) -> str:
    """An option of a plan with its value: ``20,000 rows per chunk``, ``left join``, ``zipf 1.2``; a command."""
    if name == "command":
        return str(value)
    if name == "how":
        return f"{value} join"
    if name == "stores":
        return f"{PARTITION_WRITES} {PARTITION_WRITE_NAMES.get(str(value), value)}"
    if name == "workers" and isinstance(value, int):
        return count_with_noun(value, "worker")
    count = f"{value:,}" if isinstance(value, int) else str(value)
    return f"{count} rows per chunk" if name == "rows_per_chunk" else f"{name.replace('_', ' ')} {count}"


def merge_keys_text(workload: RecordedWorkload) -> str:
    """The keys of a merge: ``key, o_key = l_key``, with both names where they differ; empty without keys."""
    keys = []
    for key in workload.keys or ():
        names = [
            next((column.source for column in table.columns if column.name == key and column.source), key)
            for table in (workload.left, workload.right)
            if table is not None
        ]
        keys.append(" = ".join(dict.fromkeys(map(quote_name, names or [key]))))
    return ", ".join(keys)


def date_text(epoch_seconds: float | None) -> str:
    """Format seconds since the epoch as ``22 November 2026, 11:00 UTC``; empty for a time that no calendar has."""
    time = utc_time(epoch_seconds)
    return "" if time is None else f"{time.day} {time:%B %Y, %H:%M} UTC"


def short_time_texts(epoch_seconds: Iterable[float | None], *, with_time_of_day: bool = False) -> list[str]:
    """Format times as ``25 Nov``, with the year if years differ, and as ``25 Nov 14:02`` if all are on one day.

    `with_time_of_day`: add the time of day in any case.
    """
    dates = [utc_time(seconds) for seconds in epoch_seconds]
    times = [(f"{d.day} {d:%b}", f"{d:%Y}", f"{d:%H:%M}") if d is not None else ("", "", "") for d in dates]
    several = len({year for _, year, _ in times if year}) > 1
    with_time_of_day = with_time_of_day or len({each[:2] for each in times}) == 1
    return [" ".join(filter(None, (day, year * several, time * with_time_of_day))) for day, year, time in times]


def _result_entry_label(entry: ResultEntry) -> str:
    """The label of a campaign in a list: its title, its engines if one is unusual, and its status."""
    return " · ".join(
        filter(
            None,
            (shorten_middle(title_of_result_entry(entry), 60), unusual_engine_names_text(entry.plans), entry.status),
        )
    )


def campaign_ids_by_label(
    entries: Sequence[ResultEntry], entry_label: Callable[[ResultEntry], str] = _result_entry_label
) -> dict[str, str]:
    """The ids of campaigns by the label that a list shows, the start time and `entry_label`: ``25 Nov 14:02 · tcp: …``.

    The folder's name is added where two labels are the same, and the year where years differ.
    """
    began = short_time_texts((entry.started for entry in entries), with_time_of_day=True)
    labels = [
        " · ".join(filter(None, (time, mark_unprintable(entry_label(entry)))))
        for time, entry in zip(began, entries, strict=True)
    ]
    counts = Counter(labels)
    return {
        label + f" ({mark_unprintable(entry.folder.name)})" * (counts[label] > 1): entry.id
        for label, entry in zip(labels, entries, strict=True)
    }


def utc_time(epoch_seconds: float | None) -> datetime | None:
    """Seconds since the epoch as a time in UTC; None for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(epoch_seconds, UTC) if epoch_seconds is not None else None
    except (OverflowError, ValueError, OSError):
        return None


def recorded_workers(launches: Iterable[Launch]) -> list[Worker]:
    """The recorded workers of all launches that started; a worker of several launches is listed several times."""
    return [worker for launch in launches if launch.line is not None for worker in launch.line.workers]


def campaign_hosts_text(campaign: Campaign) -> str:
    """The hosts of a campaign's workers, as text: ``node0 and node1``."""
    return join_names_in_words(dict.fromkeys(worker.host for worker in recorded_workers(campaign.launches)))


def campaign_ucx_versions_text(campaign: Campaign) -> str:
    """The UCX versions of a campaign: ``UCX 1.21.0``; empty if none is recorded."""
    versions = {worker.ucx.version for worker in recorded_workers(campaign.launches) if worker.ucx.version}
    return f"UCX {join_names_in_words(sorted(versions))}" if versions else ""


def join_names_in_words(names: Iterable[str]) -> str:
    """Join names as people do: ``a``, ``a and b``, ``a, b and c``; of many, the first and the number of others."""
    short_names = [shorten_middle(mark_unprintable(name)) for name in names]
    more = len(short_names) - _MOST_NAMES
    shown = [*short_names[:_MOST_NAMES], f"{more} more"] if more > 1 else short_names
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def result_source_lines(campaigns: Sequence[Campaign], all_campaigns: Sequence[Campaign] = ()) -> str:
    """Lines below a picture that name its campaigns, with letter, host and date; of many, the first ones.

    What the records lack is named as not recorded: host and UCX of an imported result, or of one whose launches failed.
    `all_campaigns`: all campaigns of the report, if the picture shows only some of them.
    """
    lines = []
    for number, campaign in enumerate(campaigns[:_MOST_LINES]):
        place = next((at for at, other in enumerate(all_campaigns) if other is campaign), number)
        short = result_letter(place, len(all_campaigns or campaigns))
        lines.append(f"{short}: {_result_source_line(campaign)}" if short else _result_source_line(campaign))
    more = len(campaigns) - _MOST_LINES
    return "\n".join([*lines, f"and {more} more results"] if more > 0 else lines)


def add_result_source_lines(charts: Iterable[Chart], campaigns: Sequence[Campaign]) -> list[Chart]:
    """Return copies of `charts` with the lines that name their campaigns, hosts and dates."""
    source = result_source_lines(campaigns)
    return [replace(chart, source=source) for chart in charts]


def _result_source_line(campaign: Campaign) -> str:
    """A line that names a campaign: folder, hosts, date, UCX, processor and GPU."""
    workers, time = recorded_workers(campaign.launches), utc_time(campaign.head.time)
    hosts = _distinct_texts(worker.host for worker in workers)
    where = "host not recorded"
    if hosts:
        several = f"{len(hosts)} hosts, {hosts[0]} to {hosts[-1]}"
        where = several if len(hosts) > _MOST_HOSTS else f"{plural_noun(len(hosts), 'host')} {', '.join(hosts)}"
    methods = (
        line.method for launch in campaign.launches for line in launch.probes
    )  # of other programs, with their UCX
    versions = _distinct_texts(worker.ucx.version for worker in workers) or _distinct_texts(
        named[1] for method in methods if (named := _VERSION.search(method))
    )
    without = "no UCX loaded" if workers and campaign.command is None else "UCX not recorded"
    parts = [
        campaign.head.campaign_id,
        where,
        ("imported " if campaign.head.imported_from else "")
        + (f"{time:%Y-%m-%d %H:%M} UTC" if time else "date not recorded"),
        f"UCX {' / '.join(versions)}" if versions else without,
        *_distinct_texts(worker.hardware.cpu_model for worker in workers)[:1],
        *_distinct_texts(gpu.name for worker in workers for gpu in worker.hardware.gpus or ())[:1],
    ]
    return " · ".join(parts)


def _distinct_texts(values: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(filter(None, values)))


def failure_location_text(failure: FailureLine, campaign: Campaign) -> str:
    """Where a failure happened: ``launch 3, tcp, after 4 timed iterations, rank 1, node0``, as far as recorded."""
    launch = next((each for each in campaign.launches if each.index == failure.launch), None)
    of_command = launch.run_key[0] if launch is not None and launch.run_key is not None and campaign.command else None
    parts = [
        f"launch {failure.launch}" if failure.launch is not None else None,
        failure.config or of_command,
        _launch_progress_text(launch) if launch is not None and campaign.command is None else None,
        f"rank {failure.rank}" if failure.rank is not None else None,
        failure.host,
    ]
    return ", ".join(filter(None, parts))


def _launch_progress_text(launch: Launch) -> str:
    """How far a launch got before it failed: ``after 4 timed iterations``."""
    if launch.line is None:
        return "while the cluster started"
    if launch.link is not None or launch.memory is not None:
        return "after the last iteration"
    if launch.probes:
        return f"after {count_with_noun(len(launch.probes), 'measurement')}"
    if launch.timed_iterations:
        return f"after {count_with_noun(len(launch.timed_iterations), 'timed iteration')}"
    return "in the warm-up" if launch.iterations else "before the first iteration"


def failure_logs_path(failure: FailureLine, campaign: Campaign) -> Path | None:
    """The path of the logs of the launch that failed, or else of the folder of all logs; None without logs."""
    folder = campaign.folder / LOGS
    if failure.launch is not None and any(folder.glob(f"launch-{failure.launch:03d}-*")):
        return folder / f"launch-{failure.launch:03d}-*{'' if campaign.command is not None else '.log'}"
    return folder if folder.is_dir() else None
