"""Titles of results for people: config, problem, date and host, instead of the name of a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import PurePath

from msgspec.structs import replace

from merge_bench.config.parsers import quoted
from merge_bench.merge import engines
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import RecordedPlan, Table, Workload, is_tuning
from merge_bench.records.results_folder import Entry
from merge_bench.records.schema import CampaignLine
from merge_bench.units import plural, plural_noun
from merge_bench.view.numbers import rows
from merge_bench.view.text import short, visible

_MOST_NAMES = 3


def title_of(head: CampaignLine, plans: Sequence[RecordedPlan], measured: Collection[int] = ()) -> str:
    """The title of a campaign: ``default and tcp: 1,000,000 rows per chunk, 2 workers``; or that it is a tuning.

    `measured`: the indexes of the plans that a tuning has measured.
    """
    configs = listed(config.name for config in head.configs)
    what = next((plan.probe for plan in plans if plan.probe is not None), None)
    if what is not None:
        return f"Network measurement {what}: {configs}"
    first = f"Tuning of {configs}" if is_tuning(plans) else configs
    return f"{first}: {measured_problem(plans, measured)}" + (" (imported)" if head.imported_from is not None else "")


def title_of_entry(entry: Entry, measured: Collection[int] = ()) -> str:
    """The title of a campaign in a results folder; the folder's name if the first line of records cannot be read."""
    return entry.folder.name if entry.head is None else title_of(entry.head, entry.plans, measured)


def is_tuning_campaign(campaign: Campaign) -> bool:
    """Whether a campaign is a tuning, even one without a step yet."""
    return bool(campaign.tuning) or is_tuning(campaign.plans)


def measured_problem(plans: Sequence[RecordedPlan], measured: Collection[int]) -> str:
    """What a campaign merges; of a tuning, which may never get to some sizes, only what it has measured.

    `measured`: the indexes of the plans that a tuning has measured.
    """
    if not is_tuning(plans):
        return problem_of(plans)
    launched = [plan for at, plan in enumerate(plans) if at in measured]
    return problem_of(launched or [replace(plan, rows_per_chunk=None, workload=None) for plan in plans])


def problem_of(plans: Sequence[RecordedPlan]) -> str:
    """What plans merge, and by how many workers: ``1,000,000 rows per chunk, 2 workers``."""
    questions = _benchmark_questions(plans)
    tables = questions or dict.fromkeys(tables_of(plan) for plan in plans)
    workers = sorted({plan.workers for plan in plans if plan.workers is not None})
    sizes = sorted({plan.rows_per_chunk for plan in plans if plan.rows_per_chunk is not None})
    joins = dict.fromkeys(f"{plan.how} join" for plan in plans if plan.how not in (None, "inner"))
    parts = [listed(joins)] if joins and not questions else []
    parts += [f"{listed(map(rows, sizes))} rows per chunk"] if sizes else []
    parts += [text for text in tables if text]
    parts += [f"{listed(map(str, workers))} {'worker' if workers == [1] else 'workers'}"] if workers else []
    return ", ".join(parts) or "problem not recorded"


def _benchmark_questions(plans: Sequence[RecordedPlan]) -> list[str]:
    """``h2o q1, q2 and q3 (10,000,000 rows)``, alone in a list, if plans are several questions of one benchmark."""
    questions = dict.fromkeys(plan.question for plan in plans)
    benchmarks = {each.partition(" ")[0] for each in questions}
    if len(questions) < 2 or "" in benchmarks or len(benchmarks) > 1:
        return []
    *others, last = (each.partition(" ")[2] for each in questions)
    largest = max((_most_rows(plan) for plan in plans), default=0)
    return [f"{benchmarks.pop()} {', '.join(others)} and {last} ({rows(largest)} rows)"]


def _most_rows(plan: RecordedPlan) -> int:
    """The number of rows of a plan's larger table; 0 if it is not known."""
    work = plan.workload
    return max(((table and table.rows) or 0 for table in (work and work.left, work and work.right)), default=0)


def unusual_engines(plans: Sequence[RecordedPlan]) -> str:
    """All engines of `plans`, such as ``engine duckdb``, if one is not the choice of ``auto``; else empty."""
    with_engine = [plan for plan in plans if plan.engine]
    if all(plan.engine in _usual_engines(plan) for plan in with_engine):
        return ""
    used = dict.fromkeys(str(plan.engine) for plan in with_engine)
    return f"{plural_noun(len(used), 'engine')} {listed(used)}"


def _usual_engines(plan: RecordedPlan) -> list[str]:
    """The names of the engines that ``auto`` means for a plan, on host memory and on a GPU."""
    dask = not recorded_plane(plan.exchange).by_workers
    return [engines.first_engine(device_memory=device, dask=dask).name for device in (False, True)]


def tables_of(plan: RecordedPlan) -> str:
    """The tables of a plan: ``orders.parquet ⋈ lines.parquet on o_key = l_key (15,000 / 60,000 rows)``; or empty.

    The question of a benchmark stands before it, with a colon.
    """
    work = plan.workload
    if work is None or work.left is None or work.right is None:
        return ""
    keys = keys_of(work) or "?"
    counts = " / ".join(rows(table.rows) for table in (work.left, work.right))
    question = f"{plan.question}: " if plan.question else ""
    return question + f"{_file_name(work.left)} ⋈ {_file_name(work.right)} on {keys} ({counts} rows)"


def size_of(campaign: Campaign, plan: int) -> str:
    """What distinguishes one plan of a campaign, given by its index: rows per chunk, the question or the tables."""
    recorded = campaign.plans[plan] if plan < len(campaign.plans) else RecordedPlan()
    work = recorded.workload
    if recorded.rows_per_chunk is not None:
        return f"{rows(recorded.rows_per_chunk)} rows per chunk"
    if recorded.question or work is None or work.left is None or work.right is None:
        return recorded.question or "size not recorded"
    return f"{_file_name(work.left)} ⋈ {_file_name(work.right)}"


def _file_name(table: Table) -> str:
    return PurePath(table.path).name if table.path else "?"


def option_text(name: str, value: object) -> str:
    """An option of a plan with its value: ``20,000 rows per chunk``, ``1 worker``, ``payload columns 2``."""
    if name == "workers" and isinstance(value, int):
        return plural(value, "worker")
    count = f"{value:,}" if isinstance(value, int) else str(value)
    return f"{count} rows per chunk" if name == "rows_per_chunk" else f"{name.replace('_', ' ')} {count}"


def keys_of(work: Workload) -> str:
    """The keys of a merge: ``key, o_key = l_key``, with both names where they differ; empty without keys."""
    keys = []
    for key in work.keys or ():
        names = [
            next((column.source for column in table.columns if column.name == key and column.source), key)
            for table in (work.left, work.right)
            if table is not None
        ]
        keys.append(" = ".join(dict.fromkeys(map(quoted, names or [key]))))
    return ", ".join(keys)


def date_text(seconds: float | None) -> str:
    """``22 November 2026, 11:00 UTC``, from seconds since the epoch; empty for a time that no calendar has."""
    time = utc_time(seconds)
    return "" if time is None else f"{time.day} {time:%B %Y, %H:%M} UTC"


def short_time(seconds: float | None) -> tuple[str, str, str]:
    """``25 Nov``, ``2026`` and ``14:02`` in UTC, from seconds since the epoch; empty if no calendar has that time."""
    time = utc_time(seconds)
    return ("", "", "") if time is None else (f"{time.day} {time:%b}", f"{time:%Y}", f"{time:%H:%M}")


def short_times(moments: Iterable[float | None], *, clock: bool = False) -> list[str]:
    """Times as ``25 Nov``, with the year if years differ; as ``25 Nov 14:02`` if `clock` or all are of one day."""
    times = [short_time(each) for each in moments]
    several = len({year for _, year, _ in times if year}) > 1
    clock = clock or len({each[:2] for each in times}) == 1
    return [" ".join(filter(None, (day, year * several, time * clock))) for day, year, time in times]


def _entry_label(entry: Entry) -> str:
    """The label of a campaign in a list: its title, its engines if one is unusual, and its status."""
    return " · ".join(filter(None, (short(title_of_entry(entry), 60), unusual_engines(entry.plans), entry.status)))


def entry_choices(entries: Sequence[Entry], name: Callable[[Entry], str] = _entry_label) -> dict[str, str]:
    """Choices of a list: the id of each campaign by its label, the time and `name`: ``25 Nov 14:02 · tcp: … · done``.

    The folder's name is added where two labels are the same, and the year where years differ.
    """
    began = short_times((entry.started for entry in entries), clock=True)
    labels = [
        " · ".join(filter(None, (time, visible(name(entry))))) for time, entry in zip(began, entries, strict=True)
    ]
    counts = Counter(labels)
    return {
        label + f" ({visible(entry.folder.name)})" * (counts[label] > 1): entry.id
        for label, entry in zip(labels, entries, strict=True)
    }


def utc_time(seconds: float | None) -> datetime | None:
    """Seconds since the epoch as a time in UTC; None for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None
    except (OverflowError, ValueError, OSError):
        return None


def host_label(campaign: Campaign) -> str:
    """The hosts of a campaign's workers: ``node0 and node1``; empty if no launch started."""
    lines = (launch.line for launch in campaign.launches if launch.line is not None)
    return listed(dict.fromkeys(worker.host for line in lines for worker in line.workers))


def ucx_label(campaign: Campaign) -> str:
    """The UCX versions of a campaign: ``UCX 1.21.0``; empty if none is recorded."""
    lines = (launch.line for launch in campaign.launches if launch.line is not None)
    versions = {worker.ucx.version for line in lines for worker in line.workers if worker.ucx.version}
    return f"UCX {listed(sorted(versions))}" if versions else ""


def listed(names: Iterable[str]) -> str:
    """Names as a list in words: ``a``, ``a and b``, ``a, b and c``; of many, the first and the number of others."""
    short_names = [short(visible(name)) for name in names]
    more = len(short_names) - _MOST_NAMES
    shown = [*short_names[:_MOST_NAMES], f"{more} more"] if more > 1 else short_names
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
