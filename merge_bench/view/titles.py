"""What results are called for people: config, problem, date and host, instead of the name of a folder."""

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

_MOST = 3


def title_of(head: CampaignLine, plans: Sequence[RecordedPlan], measured: Collection[int] = ()) -> str:
    """``default and tcp: 1,000,000 rows per chunk, 2 workers``; of tunings and network measurements, what they are.

    `measured`: as in `measured_problem`.
    """
    configs = listed(config.name for config in head.configs)
    what = next((plan.probe for plan in plans if plan.probe is not None), None)
    if what is not None:
        return f"Network measurement {what}: {configs}"
    first = f"Tuning of {configs}" if is_tuning(plans) else configs
    return f"{first}: {measured_problem(plans, measured)}" + (" (imported)" if head.imported_from is not None else "")


def title_of_entry(entry: Entry, measured: Collection[int] = ()) -> str:
    """The same of a result in a list; the folder's name if its first line cannot be read."""
    return entry.folder.name if entry.head is None else title_of(entry.head, entry.plans, measured)


def tunes(campaign: Campaign) -> bool:
    """Whether this is a tuning, even without a step yet."""
    return bool(campaign.tuning) or is_tuning(campaign.plans)


def measured_problem(plans: Sequence[RecordedPlan], measured: Collection[int]) -> str:
    """`problem_of` all plans; of a tuning, which may never get to some sizes, without those that are not `measured`.

    `measured`: indexes of plans.
    """
    if not is_tuning(plans):
        return problem_of(plans)
    launched = [plan for at, plan in enumerate(plans) if at in measured]
    return problem_of(launched or [replace(plan, rows_per_chunk=None, workload=None) for plan in plans])


def problem_of(plans: Sequence[RecordedPlan]) -> str:
    """What is merged, and by how many workers."""
    questions = _questions(plans)
    tables = questions or dict.fromkeys(tables_of(plan) for plan in plans)
    workers = sorted({plan.workers for plan in plans if plan.workers is not None})
    sizes = sorted({plan.rows_per_chunk for plan in plans if plan.rows_per_chunk is not None})
    joins = dict.fromkeys(f"{plan.how} join" for plan in plans if plan.how not in (None, "inner"))
    parts = [listed(joins)] if joins and not questions else []
    parts += [f"{listed(map(rows, sizes))} rows per chunk"] if sizes else []
    parts += [text for text in tables if text]
    parts += [f"{listed(map(str, workers))} {'worker' if workers == [1] else 'workers'}"] if workers else []
    return ", ".join(parts) or "problem not recorded"


def _questions(plans: Sequence[RecordedPlan]) -> list[str]:
    """``h2o q1, q2, q3, q4 and q5 (10,000,000 rows)``, where several questions of one benchmark are merged."""
    questions = dict.fromkeys(plan.question for plan in plans)
    benchmarks = {each.partition(" ")[0] for each in questions}
    if len(questions) < 2 or "" in benchmarks or len(benchmarks) > 1:
        return []
    *others, last = (each.partition(" ")[2] for each in questions)
    largest = max((_most_rows(plan) for plan in plans), default=0)
    return [f"{benchmarks.pop()} {', '.join(others)} and {last} ({rows(largest)} rows)"]


def _most_rows(plan: RecordedPlan) -> int:
    work = plan.workload
    return max(((table and table.rows) or 0 for table in (work and work.left, work and work.right)), default=0)


def unusual_engines(plans: Sequence[RecordedPlan]) -> str:
    """``engine duckdb``, or all engines of `plans`, if one is not what ``auto`` means; else empty."""
    with_engine = [plan for plan in plans if plan.engine]
    if all(plan.engine in _usual_engines(plan) for plan in with_engine):
        return ""
    used = dict.fromkeys(str(plan.engine) for plan in with_engine)
    return f"{plural_noun(len(used), 'engine')} {listed(used)}"


def _usual_engines(plan: RecordedPlan) -> list[str]:
    dask = not recorded_plane(plan.exchange).by_workers
    return [engines.first_engine(device_memory=device, dask=dask).name for device in (False, True)]


def tables_of(plan: RecordedPlan) -> str:
    """``orders.parquet ⋈ lines.parquet on o_key = l_key (15,000 / 60,000 rows)``; empty without files.

    The question of a benchmark stands before it, with a colon.
    """
    work = plan.workload
    if work is None or work.left is None or work.right is None:
        return ""
    keys = keys_of(work) or "?"
    counts = " / ".join(rows(table.rows) for table in (work.left, work.right))
    question = f"{plan.question}: " if plan.question else ""
    return question + f"{_file(work.left)} ⋈ {_file(work.right)} on {keys} ({counts} rows)"


def size_of(campaign: Campaign, plan: int) -> str:
    """What tells a plan of `campaign` from its others: the rows per chunk, the question or the tables."""
    recorded = campaign.plans[plan] if plan < len(campaign.plans) else RecordedPlan()
    work = recorded.workload
    if recorded.rows_per_chunk is not None:
        return f"{rows(recorded.rows_per_chunk)} rows per chunk"
    if recorded.question or work is None or work.left is None or work.right is None:
        return recorded.question or "size not recorded"
    return f"{_file(work.left)} ⋈ {_file(work.right)}"


def _file(table: Table) -> str:
    return PurePath(table.path).name if table.path else "?"


def option_of(name: str, value: object) -> str:
    """``20,000 rows per chunk``, ``1 worker``, ``payload columns 2``: an option of a plan with its value."""
    if name == "workers" and isinstance(value, int):
        return plural(value, "worker")
    count = f"{value:,}" if isinstance(value, int) else str(value)
    return f"{count} rows per chunk" if name == "rows_per_chunk" else f"{name.replace('_', ' ')} {count}"


def keys_of(work: Workload) -> str:
    """``key, o_key = l_key``: the name of each key, and both where they differ; empty without keys."""
    keys = []
    for key in work.keys or ():
        names = [
            next((column.source for column in table.columns if column.name == key and column.source), key)
            for table in (work.left, work.right)
            if table is not None
        ]
        keys.append(" = ".join(dict.fromkeys(map(quoted, names or [key]))))
    return ", ".join(keys)


def when(seconds: float | None) -> str:
    """``22 November 2026, 11:00 UTC``; empty for a time that no calendar has."""
    time = moment(seconds)
    return "" if time is None else f"{time.day} {time:%B %Y, %H:%M} UTC"


def short_time(seconds: float | None) -> tuple[str, str, str]:
    """``25 Nov``, ``2026``, ``14:02``, in UTC; empty for a time that no calendar has."""
    time = moment(seconds)
    return ("", "", "") if time is None else (f"{time.day} {time:%b}", f"{time:%Y}", f"{time:%H:%M}")


def short_times(moments: Iterable[float | None], *, clock: bool = False) -> list[str]:
    """Each as ``25 Nov``, with the year if there are several; as ``25 Nov 14:02`` if `clock` or all are of one day."""
    times = [short_time(each) for each in moments]
    several = len({year for _, year, _ in times if year}) > 1
    clock = clock or len({each[:2] for each in times}) == 1
    return [" ".join(filter(None, (day, year * several, time * clock))) for day, year, time in times]


def _offer(entry: Entry) -> str:
    """Its title, its engines if one is not the usual one, and its status."""
    return " · ".join(filter(None, (short(title_of_entry(entry), 60), unusual_engines(entry.plans), entry.status)))


def offered(entries: Sequence[Entry], name: Callable[[Entry], str] = _offer) -> dict[str, str]:
    """The id of each of `entries` by when it began and its `name`: ``25 Nov 14:02 · tcp: … · done``.

    The folder's name is added where two have the same label, and the year where there are several.
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


def moment(seconds: float | None) -> datetime | None:
    """Seconds since the epoch as a time in UTC; None for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None
    except (OverflowError, ValueError, OSError):
        return None


def where_of(campaign: Campaign) -> str:
    """The hosts of its workers; empty if no launch started."""
    lines = (launch.line for launch in campaign.launches if launch.line is not None)
    return listed(dict.fromkeys(worker.host for line in lines for worker in line.workers))


def ran_with(campaign: Campaign) -> str:
    """``UCX 1.21.0``, with all versions where they differ; empty if it is not recorded."""
    lines = (launch.line for launch in campaign.launches if launch.line is not None)
    versions = {worker.ucx.version for line in lines for worker in line.workers if worker.ucx.version}
    return f"UCX {listed(sorted(versions))}" if versions else ""


def listed(names: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; of many the first ones, and how many more."""
    given = [short(visible(name)) for name in names]
    shown = given if len(given) <= _MOST + 1 else [*given[:_MOST], f"{len(given) - _MOST} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
