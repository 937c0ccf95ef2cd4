"""Reads published results of others: `results/published/`, described in `docs/reference/published.md`.

Each dataset has a ``.toml`` with its content, its source and its doubts, and a ``.csv`` or a campaign's folder with its
numbers: the published value and the same in SI units. What reads one raises UsageError if there is none of this name
and kind.
"""

from __future__ import annotations

import csv
import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from merge_bench.errors import UsageError
from merge_bench.records.probe_rows import ProbeRow, median_and_range
from merge_bench.records.results_folder import ResultsFolder

FOLDER = Path(__file__).with_name("published_data").resolve()
"""`results/published/`: a link to it in a checkout, its files in an installed package."""

NETWORK, MERGE, SETTINGS, CAMPAIGN = "network", "merge", "settings", "campaign"
_KINDS = {
    NETWORK: "network measurements",
    MERGE: "merge results",
    SETTINGS: "effects of settings",
    CAMPAIGN: "a campaign",
}

SHIPPED, PUBLISHED = "shipped", "published"
"""Origins of results in lists."""


def published_beside(results: Path) -> list[ResultsFolder]:
    """The folders of published and shipped results that are listed beside the results in folder `results`."""
    shipped = FOLDER.parent
    places = {results / "curated": SHIPPED, results / "published": PUBLISHED}
    if results.resolve() != shipped:
        places |= {FOLDER: PUBLISHED, shipped / "curated": SHIPPED}
    return [ResultsFolder(place, origin) for place, origin in places.items()]


class PublishedSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The values that all rows of one series of a network dataset have in common."""

    test: str
    config: str
    placement: str
    hosts: tuple[str, ...] = ()
    requested: dict[str, str] = {}
    selected: tuple[str, ...] = ()


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A published dataset. `kind`: ``network``, ``merge``, ``settings`` or ``campaign``; `path`: its numbers.

    `cite` names the source in a few words; `notes` are corrections and doubts, a sentence or more each; `configs` are
    the settings behind the names of configs, where published. `tool`: what network rows call their method.
    """

    name: str
    kind: str
    title: str
    what: str
    cite: str
    authors: str
    source: tuple[str, ...]
    hardware: str
    method: str
    published_units: str
    stored_units: str
    path: Path
    notes: tuple[str, ...]
    date: str | None = None
    probe: str | None = None
    tool: str | None = None
    configs: dict[str, dict[str, str]] = {}
    series: dict[str, PublishedSeries] = {}


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """A published merge result: `metric` is ``bandwidth`` or ``throughput``, `published` the number as printed.

    `value`: bytes per second, corrected if `note` explains a correction; None where the printed number is not valid.
    """

    hardware: str
    rows_per_chunk: int
    config: str
    metric: str
    value: float | None = msgspec.field(name="bytes_per_second")
    published: str
    source: str
    note: str | None


class SettingEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one changed setting: `value` beside `baseline`, bytes per second; `ratio` of the two, recomputed.

    `beside`: the config that was changed. `figure_label` and `figure_ratio`: the bar of the published figure.
    `published_percent`: as printed, 102.9 for a ratio of 1.029. None: not published.
    """

    label: str
    variables: dict[str, str]
    beside: str
    metric: str
    value: float | None = msgspec.field(name="bytes_per_second")
    baseline: float | None = msgspec.field(name="baseline_bytes_per_second")
    ratio: float | None
    published: str | None
    published_percent: float | None
    figure_label: str | None
    figure_ratio: float | None
    section: str
    source: str
    note: str | None


@functools.cache
def datasets(folder: Path = FOLDER) -> Mapping[str, Dataset]:
    """The published datasets in a folder, by name.

    Raises UsageError if the link to them is broken, as in a checkout without symbolic links.
    """
    if not folder.is_dir():
        raise UsageError(
            f"the published results are missing, because {folder} is missing or broken; create it again as a"
            " symbolic link to results/published"
        )
    contents = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))}
    return {
        name: msgspec.convert({**content, "name": name, "path": folder / content["data"]}, Dataset)
        for name, content in contents.items()
    }


def dataset(name: str, kind: str | None = None) -> Dataset:
    """The published dataset of this name; raises UsageError if there is none, or it is not of `kind`."""
    by_name = {each: data for each, data in datasets().items() if kind in (None, data.kind)}
    if name in by_name:
        return by_name[name]
    listed = ", ".join(by_name)
    if name in datasets():
        has, wanted = _KINDS[datasets()[name].kind], _KINDS[kind or ""]
        raise UsageError(f"the published dataset {name!r} contains {has}, not {wanted}; choose a dataset from {listed}")
    raise UsageError(f"there is no published dataset {name!r}; choose from {listed}")


def network_rows(name: str) -> list[ProbeRow]:
    """The valid rows of a published network dataset, by series and message size."""
    data = dataset(name, NETWORK)
    groups: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for line in _read_csv_lines(data):
        if line["valid"] == "true":
            groups.setdefault((line["series"], line["size_bytes"]), []).append(line)
    return [_make_probe_row(data, series, lines) for (series, _), lines in groups.items()]


def merge_results(name: str) -> list[MergeResult]:
    """The results in a published merge dataset, one for each cell of its tables."""
    data = dataset(name, MERGE)
    results = []
    for line in _read_csv_lines(data):
        cells = _cell_values(line) | {"hardware": data.hardware, "source": f"{data.cite}, Table {line['table']}"}
        if line["valid"] != "true":
            cells["bytes_per_second"] = None
        results.append(msgspec.convert(cells, MergeResult, strict=False))
    return results


def settings_effects(name: str) -> list[SettingEffect]:
    """The effects of single settings in a published dataset, in the order of the report."""
    data = dataset(name, SETTINGS)
    effects = []
    for line in _read_csv_lines(data):
        variables = dict(word.split("=", 1) for word in line["variables"].split())
        extra_cells = {"variables": variables, "source": f"{data.cite}, section {line['section']}"}
        effects.append(msgspec.convert(_cell_values(line) | extra_cells, SettingEffect, strict=False))
    return effects


def campaign_folder(name: str) -> Path:
    """The folder of a published campaign; `merge_bench.records.reader.read_campaign` reads it."""
    return dataset(name, CAMPAIGN).path


def _read_csv_lines(data: Dataset) -> Iterator[Mapping[str, str]]:
    with data.path.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _make_probe_row(data: Dataset, series: str, lines: Sequence[Mapping[str, str]]) -> ProbeRow:
    """The row of one message size: the mean, and the least and greatest values of ranks where published."""
    same, first = data.series[series], lines[0]
    notes = dict.fromkeys(line["note"] for line in lines if line["note"])

    def first_number(column: str, statistic: str) -> float | None:
        texts = (line[column] for line in lines if line["statistic"] == statistic)
        return next((float(text) for text in texts if text), None)

    seconds, seconds_range = median_and_range([first_number("seconds", "mean")])
    bandwidth, bandwidth_range = median_and_range([first_number("bytes_per_second", "mean")])
    return ProbeRow(
        probe=data.probe or "",
        test=same.test,
        method=data.tool or data.method,
        config=same.config,
        placement=same.placement,
        size=int(first["size_bytes"]),
        hosts=same.hosts,
        count=int(first["count"]) if first["count"] else None,
        seconds_median=seconds,
        seconds_range=seconds_range,
        seconds_ranks=(first_number("seconds", "min"), first_number("seconds", "max")),
        bandwidth_median=bandwidth,
        bandwidth_range=bandwidth_range,
        bandwidth_ranks=(first_number("bytes_per_second", "min"), first_number("bytes_per_second", "max")),
        requested=dict(sorted(same.requested.items())),
        selected=same.selected,
        source=data.cite,
        note="; ".join(notes) or None,
    )


def _cell_values(line: Mapping[str, str]) -> dict[str, object]:
    """The cells of a CSV line by column, None for empty ones; `published`: the number as it is printed."""
    printed = f"{line['published_value']} {line['published_unit']}".strip()
    return {name: value or None for name, value in {**line, "published": printed}.items()}
