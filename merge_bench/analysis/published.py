"""Results that others have published, as data: `results/published/`, described in `docs/published.md`.

Each dataset has a ``.toml`` that says what it is, where it comes from and what is doubtful, and its numbers beside it:
a ``.csv``, or a campaign's folder. The published value stays visible in it beside the one in SI units.
"""

from __future__ import annotations

import csv
import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.records.probe_rows import Range, Row

FOLDER = Path(__file__).with_name("published_data").resolve()
"""`results/published/`: a link to it in a checkout, its files in an installed package."""

NETWORK, MERGE, SETTINGS, CAMPAIGN = "network", "merge", "settings", "campaign"
_KINDS = {
    NETWORK: "network measurements",
    MERGE: "merge results",
    SETTINGS: "effects of settings",
    CAMPAIGN: "a campaign",
}


@dataclass(frozen=True)
class Dataset:
    """What a dataset is. `kind`: ``network``, ``merge``, ``settings`` or ``campaign``; `path`: its numbers.

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
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    series: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class MergeResult:
    """A cell of a published table: `metric` is ``bandwidth`` or ``throughput``, `published` what is printed.

    `value`: bytes per second, corrected where `note` says so; None where the printed number is not valid.
    """

    hardware: str
    rows_per_chunk: int
    config: str
    metric: str
    value: float | None
    published: str
    source: str
    note: str | None


@dataclass(frozen=True)
class SettingEffect:
    """What one change did: `value` beside `baseline`, bytes per second; `ratio` of the two, recomputed.

    `beside`: the config that was changed. `figure_label` and `figure_ratio`: the bar of the published figure.
    `published_percent`: as printed, 102.9 for a ratio of 1.029. None: not published.
    """

    label: str
    variables: Mapping[str, str]
    beside: str
    metric: str
    value: float | None
    baseline: float | None
    ratio: float | None
    published: str | None
    published_percent: float | None
    figure_label: str | None
    figure_ratio: float | None
    section: str
    source: str
    note: str | None


@functools.cache
def datasets() -> Mapping[str, Dataset]:
    """Every dataset by its name.

    Raises
    ------
    UsageError
        If the link to them is broken, as in a checkout without symbolic links.
    """
    if not FOLDER.is_dir():
        raise UsageError(f"there are no published results: {FOLDER} is no folder, and should lead to results/published")
    return {path.stem: _dataset(path) for path in sorted(FOLDER.glob("*.toml"))}


def dataset(name: str, kind: str | None = None) -> Dataset:
    """The dataset of this name, if it is of `kind`.

    Raises
    ------
    UsageError
        If there is none; the sentence lists the names.
    """
    known = {each: one for each, one in datasets().items() if kind in (None, one.kind)}
    if name in known:
        return known[name]
    listed = ", ".join(known)
    if name in datasets():
        has, wanted = _KINDS[datasets()[name].kind], _KINDS[kind or ""]
        raise UsageError(f"the published dataset {name} holds {has}, not {wanted}; those are in: {listed}")
    raise UsageError(f"there is no published dataset {name!r}; there are: {listed}")


def network_rows(name: str) -> list[Row]:
    """The valid rows of a network dataset, series by series, by size; numbers are those of one published run.

    Raises
    ------
    UsageError
        If `name` is no network dataset.
    """
    data = dataset(name, NETWORK)
    groups: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for line in _lines(data):
        if line["valid"] == "true":
            groups.setdefault((line["series"], line["size_bytes"]), []).append(line)
    return [_row(data, series, lines) for (series, _), lines in groups.items()]


def merge_results(name: str) -> list[MergeResult]:
    """The cells of the published tables of a merge dataset.

    Raises
    ------
    UsageError
        If `name` is no merge dataset.
    """
    data = dataset(name, MERGE)
    return [
        MergeResult(
            hardware=data.hardware,
            rows_per_chunk=int(line["rows_per_chunk"]),
            config=line["config"],
            metric=line["metric"],
            value=_number(line["bytes_per_second"]) if line["valid"] == "true" else None,
            published=_printed(line),
            source=f"{data.cite}, Table {line['table']}",
            note=line["note"] or None,
        )
        for line in _lines(data)
    ]


def settings_effects(name: str) -> list[SettingEffect]:
    """What single settings did, in the order of the report.

    Raises
    ------
    UsageError
        If `name` is no dataset of settings.
    """
    data = dataset(name, SETTINGS)
    return [
        SettingEffect(
            label=line["label"],
            variables=_variables(line["variables"]),
            beside=line["beside"],
            metric=line["metric"],
            value=_number(line["bytes_per_second"]),
            baseline=_number(line["baseline_bytes_per_second"]),
            ratio=_number(line["ratio"]),
            published=_printed(line) or None,
            published_percent=_number(line["published_percent"]),
            figure_label=line["figure_label"] or None,
            figure_ratio=_number(line["figure_ratio"]),
            section=line["section"],
            source=f"{data.cite}, section {line['section']}",
            note=line["note"] or None,
        )
        for line in _lines(data)
    ]


def campaign_folder(name: str) -> Path:
    """The folder of a published campaign; `merge_bench.records.reader.read_campaign` reads it.

    Raises
    ------
    UsageError
        If `name` is no published campaign.
    """
    return dataset(name, CAMPAIGN).path


def _dataset(path: Path) -> Dataset:
    said = tomllib.loads(path.read_text(encoding="utf-8"))
    said["path"] = path.parent / said.pop("data")
    said["source"], said["notes"] = tuple(said["source"]), tuple(said["notes"])
    return Dataset(name=path.stem, **said)


def _lines(data: Dataset) -> Iterator[Mapping[str, str]]:
    with data.path.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _row(data: Dataset, series: str, lines: Sequence[Mapping[str, str]]) -> Row:
    """One size: its mean, and the least and greatest over ranks where published."""
    said, first = data.series[series], lines[0]
    notes = dict.fromkeys(line["note"] for line in lines if line["note"])

    def value(column: str, statistic: str) -> float | None:
        found = [_number(line[column]) for line in lines if line["statistic"] == statistic]
        return next((number for number in found if number is not None), None)

    def at(column: str) -> Range | None:
        mean = value(column, "mean")
        return None if mean is None else Range(mean, mean, mean)

    return Row(
        probe=data.probe or "",
        test=said["test"],
        method=data.tool or data.method,
        config=said["config"],
        placement=said["placement"],
        size=int(first["size_bytes"]),
        hosts=tuple(said.get("hosts", ())),
        count=int(first["count"]) if first["count"] else None,
        seconds=at("seconds"),
        seconds_ranks=(value("seconds", "min"), value("seconds", "max")),
        bandwidth=at("bytes_per_second"),
        bandwidth_ranks=(value("bytes_per_second", "min"), value("bytes_per_second", "max")),
        requested=tuple(sorted(said.get("requested", {}).items())),
        selected=tuple(said.get("selected", ())),
        source=data.cite,
        note="; ".join(notes) or None,
    )


def _printed(line: Mapping[str, str]) -> str:
    return f"{line['published_value']} {line['published_unit']}".strip()


def _number(text: str) -> float | None:
    return float(text) if text else None


def _variables(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in text.split())
    return {name: value for name, _, value in pairs}
