"""Rows of stored campaigns: what they measure, their order and unique names; and the ping-pong's rows as CSV.

The CSV files have the columns of the original program; one file for a series.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from merge_bench.campaign.importers import importers
from merge_bench.config.files import open_without_links, read_regular_file
from merge_bench.errors import RunFailed, UsageError
from merge_bench.probe import probes
from merge_bench.probe.shared import (
    ALL_TO_ALL,
    BUS,
    COLLECTIVE,
    LATENCY_TEST,
    ONE_WAY,
    OPERATION,
    PING_PONG,
    RATE,
    RATE_TEST,
    THROUGHPUT,
    TIME,
    WORKER_RATE,
    RowQuantity,
    test_kind_by_name,
)
from merge_bench.records import ONE_HOST, TWO_HOSTS
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import FROM_FILE, ProbeRow, make_probe_rows
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.records.schema import ProbeLine

MEASURES = {RATE_TEST: RATE, PING_PONG: THROUGHPUT, COLLECTIVE: BUS, ALL_TO_ALL: WORKER_RATE}
"""What tests of these kinds measure."""
RATE_COLUMNS, TIME_COLUMNS = "type,msgsize,time,throughput", "type,time"
LARGEST = 16 << 20
_PLACES = {ONE_HOST: ONE_HOST, "single-node": ONE_HOST, TWO_HOSTS: TWO_HOSTS, "two-nodes": TWO_HOSTS}
_TIME = r"(?P<time>\d+\.\d{6})"  # as ``%lf`` prints it: a number that was cut off has fewer digits
_ROWS = {
    RATE_COLUMNS: re.compile(rf"(?P<type>std|buff),(?P<size>[1-9]\d{{0,9}}),{_TIME},(?P<rate>\d+\.\d{{6}})", re.ASCII),
    TIME_COLUMNS: re.compile(rf"(?P<type>std|buff),{_TIME}", re.ASCII),
}


def row_test_kind(row: ProbeRow) -> str:
    """Return the kind of the test of a row: `LATENCY_TEST`, `RATE_TEST`, `PING_PONG`, `COLLECTIVE`, `ALL_TO_ALL`, …"""
    probe = probes().get(row.probe)
    unknown = OPERATION if row.probe in importers() else LATENCY_TEST
    return test_kind_by_name(row.test, otherwise=probe.other_tests if probe else unknown)


def row_quantity(row: ProbeRow) -> RowQuantity:
    """Return the quantity of a row that charts show."""
    kind, probe = row_test_kind(row), probes().get(row.probe)
    if kind == OPERATION:
        return BUS if importers()[row.probe].bus_bandwidth else TIME
    return MEASURES.get(kind, probe.latency if probe else ONE_WAY)


def row_quantities(row: ProbeRow) -> tuple[RowQuantity, ...]:
    """Return the quantities of a row that tables show; ratios are those of the first one."""
    kind = row_test_kind(row)
    if kind == PING_PONG:
        return ONE_WAY, THROUGHPUT
    if kind == OPERATION:
        return TIME, BUS if importers()[row.probe].bus_bandwidth else RATE
    return (row_quantity(row),)


def sorted_campaign_rows(campaign: Campaign) -> list[ProbeRow]:
    """Return the rows of a campaign by config, in the order of the command line: the baseline first.

    Rows of all-to-all then by number of ranks, and the data plane of merges before MPI.
    """
    order = [config.name for config in campaign.head.configs]

    def place(row: ProbeRow) -> tuple[int, int, bool, str]:
        config = order.index(row.config) if row.config in order else len(order)
        if row_test_kind(row) != ALL_TO_ALL:
            return config, 0, False, ""
        return config, len(row.ranks), row.count is not None, "" if row.test.startswith("ucx") else row.test

    return sorted(make_probe_rows(campaign), key=place)


def newest_ucx_latency_rows(results: Path) -> list[ProbeRow]:
    """Return the rows of the test tag_lat in this host's newest `probe p2p` in a results folder; [] without one."""
    this_host = socket.gethostname()
    folders = ResultsFolder(results).find_newest_results(
        lambda head: head.driver_host == this_host, is_wanted_name=lambda name: "-probe-p2p-" in name
    )
    for folder, _ in folders:
        with contextlib.suppress(UsageError):
            rows = sorted_campaign_rows(read_campaign(folder))
            if latencies := [row for row in rows if row.test == "tag_lat" and row.memory == "host"]:
                return [row for row in latencies if row.config == latencies[0].config]
    return []


def rows_with_campaigns(campaigns: Sequence[Campaign], labels: Sequence[str] = ()) -> list[tuple[Campaign, ProbeRow]]:
    """Return the rows of several campaigns, each with its campaign, and with config names that are unique.

    The name of a config that two campaigns have gets the campaign's label: of `labels`, else its time and id. Raises
    UsageError if a campaign has no network measurement, or is given twice.
    """
    for number, campaign in enumerate(campaigns):
        if campaign.probe is None and not any(launch.probes for launch in campaign.launches):
            raise UsageError(
                f"{campaign.folder} contains results of merges, not of `probe`; name only results of `probe`"
            )
        if any(other.head.campaign_id == campaign.head.campaign_id for other in campaigns[:number]):
            raise UsageError(f"the campaign in {campaign.folder} is named twice; name each campaign once")
    names_of_configs = ({config.name for config in campaign.head.configs} for campaign in campaigns)
    config_counts = Counter(itertools.chain.from_iterable(names_of_configs))
    names = labels or [_short_campaign_id(campaign) for campaign in campaigns]
    return [
        (campaign, replace(row, config=f"{row.config} ({name})") if config_counts[row.config] > 1 else row)
        for campaign, name in zip(campaigns, names, strict=True)
        for row in sorted_campaign_rows(campaign)
    ]


def _short_campaign_id(campaign: Campaign) -> str:
    first, _, rest = campaign.head.campaign_id.partition("-")
    return "-".join(filter(None, (first, rest.rpartition("-")[2])))


def append_ping_pong_csv_row(folder: Path, placement: str, line: ProbeLine) -> None:
    """Append a row of a ping-pong to the CSV file of its test (``std``, ``buff-delay``, …), after a heading if new.

    `placement`: the placement, with the ranks if there are several pairs. Raises RunFailed if the file cannot be
    written.
    """
    name, micros = line.test.removesuffix("-delay"), (line.seconds or 0.0) * 1e6
    if line.bandwidth_bytes_per_second is None:
        kind, heading, row = "delay", TIME_COLUMNS, f"{name},{micros:.6f}"
    else:
        kind, heading, rate = "throughput", RATE_COLUMNS, line.bandwidth_bytes_per_second * 8 / 1e6
        row = f"{name},{line.size},{micros * 2 * (line.iterations or 0):.6f},{rate:.6f}"
    path = folder / f"{kind}-{name}-{placement}-launch-{line.launch:03d}.csv"
    try:
        with open(path, "a", opener=open_without_links, encoding="ascii") as file:
            file.write(f"{row}\n" if file.tell() else f"{heading}\n{row}\n")
    except OSError as error:
        raise RunFailed(f"cannot write a CSV file in {folder}: {error.strerror}") from error


def read_ping_pong_csv(path: Path) -> list[ProbeRow]:
    """Return the rows of a CSV file of a ping-pong, of this program or of the original; its name has the placement.

    Raises UsageError if it is another kind of file, a line is cut off, a row is there twice, or time and rate of a row
    do not fit.
    """
    try:
        text = read_regular_file(path, LARGEST).decode("ascii")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a ping-pong CSV file: it is not text") from None
    places = {place for word, place in _PLACES.items() if word in path.stem}
    if len(places) != 1:
        raise UsageError(f"the file name of {path} must contain exactly one of {', '.join(_PLACES)}; rename the file")
    heading, *lines = text.split("\n")
    if heading not in _ROWS:
        raise UsageError(
            f"{path} is not a ping-pong CSV file: its first line is neither {RATE_COLUMNS!r} nor {TIME_COLUMNS!r}"
        )
    if lines[-1:] != [""] or not lines[:-1]:
        raise UsageError(f"{path} is truncated: {'its last line has no newline' if lines[:-1] else 'it has no rows'}")
    return list(_parse_rows(path, heading, lines[:-1], places.pop()))


def _parse_rows(path: Path, heading: str, lines: list[str], placement: str) -> Iterator[ProbeRow]:
    seen = set[tuple[str, int]]()
    for number, line in enumerate(lines, 2):
        match = _ROWS[heading].fullmatch(line)
        time = float(match["time"]) if match else 0.0
        if match is None or time <= 0:
            raise UsageError(f"{path}:{number}: expected a row with the columns {heading}, found {line[:60]!r}")
        test, size, rate = str(match["type"]), 1, None
        if heading == TIME_COLUMNS:
            test, seconds = f"{test}-delay", time * 1e-6
        else:
            size, mbits = int(match["size"]), float(match["rate"])
            loops = round(mbits * time / (16 * size))
            # Both have six decimals; add the rounding error of the product.
            if abs(mbits * time - 16 * size * loops) > 0.6e-6 * (mbits + time) + 1e-12 * mbits * time or loops < 1:
                raise UsageError(
                    f"{path}:{number}: size, throughput and time of this row contradict each other; measure again,"
                    " or remove the row"
                )
            seconds, rate = time * 1e-6 / (2 * loops), mbits * 1e6 / 8
        if (test, size) in seen:
            raise UsageError(f"{path}:{number}: there is already a row of {test} with messages of {size} bytes")
        seen.add((test, size))
        yield ProbeRow(
            probe="mpi",
            test=test,
            method="ping-pong over MPI",
            config=path.stem,
            placement=placement,
            size=size,
            seconds_median=seconds,
            seconds_range=(seconds, seconds),
            bandwidth_median=rate,
            bandwidth_range=None if rate is None else (rate, rate),
            source=f"{FROM_FILE}{path.name}",
        )
