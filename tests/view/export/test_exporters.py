"""`export`: what stands in the files, read with the programs that they are for, and what a format cannot express."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import parquet

from merge_bench.analysis.summary import summarize_campaign
from merge_bench.cli import cli
from merge_bench.records.reader import read_campaign
from merge_bench.view.export import exporters
from tests.helpers.members import run_with
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"
RESULTS = sorted(path.name for path in CAMPAIGNS.iterdir() if path.is_dir())
BENCHER = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "required": ["value"],
            "properties": {key: {"type": "number"} for key in ("value", "lower_value", "upper_value")},
            "additionalProperties": False,
        },
        "propertyNames": {"minLength": 1, "maxLength": 64, "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
    },
    "propertyNames": {"minLength": 1, "maxLength": 1024},
}
"""Bencher Metric Format: benchmark → measure → value and its limits; measures as their slugs, with Bencher's limits of
length. Stricter than what Bencher publishes, which allows other keys."""


def valid_for_bencher(document: object) -> None:
    import jsonschema  # takes seconds, which every process that collects tests would spend

    jsonschema.validate(document, BENCHER)


def export(*words: object, status: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["export", *map(str, words)])
    assert done.exit_code == status, done.output
    return done


def bencher(*results: Path) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = json.loads(export(*results, "--format", "bencher").stdout)
    return found


def samples(*results: Path) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The gauges by name, as Prometheus' own parser reads them."""
    text = export(*results, "--format", "prometheus").stdout
    families = list(text_string_to_metric_families(text))
    assert all(family.type == "gauge" and family.documentation for family in families)
    assert text.endswith("\n")
    return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}


@pytest.mark.parametrize("name", RESULTS)
def test_every_kind_of_result_fits_every_format(name: str, tmp_path: Path) -> None:
    folder = CAMPAIGNS / name
    campaign = read_campaign(folder)
    rows = list(csv.DictReader(io.StringIO(export(folder).stdout)))
    expected = sum(
        len(launch.probes) if campaign.probe else len(launch.timed_iterations)
        for launch in campaign.launches_not_replaced
    )
    assert len(rows) == expected > 0
    export(folder, "--format", "parquet", "--output", tmp_path / "rows.parquet")
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert (table.num_rows, table.column_names) == (expected, list(rows[0]))
    benchmarks = bencher(folder)
    valid_for_bencher(benchmarks)
    assert benchmarks
    gauges = samples(folder)
    assert all(re.fullmatch("merge_bench_[a-z_]+", gauge) for gauge in gauges)
    assert len({tuple(labels.items()) for labels, _ in gauges["merge_bench_measured_timestamp_seconds"]}) == len(
        gauges["merge_bench_measured_timestamp_seconds"]
    )


def test_figures_are_those_of_the_document(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, *(Script(index=i, plan=plan(launches=6)) for i in range(6)))
    document = msgspec.to_builtins(summarize_campaign(read_campaign(folder)))
    (name, measures), *others = bencher(folder).items()
    assert not others
    assert name == "optimized: 1,000,000 rows per chunk, 2 workers, engine polars, exchange ucx"
    wall = document["wall_seconds"]
    low, high = wall["ci95"]
    assert measures["wall-seconds"] == {"value": wall["median"], "lower_value": low, "upper_value": high}
    assert measures["bandwidth-bytes-per-second"] == {"value": document["bandwidth_bytes_per_second"]["harmonic_mean"]}
    assert measures["link-ratio"] == {"value": document["link"]["fraction"]}
    ((labels, throughput),) = samples(folder)["merge_bench_throughput_bytes_per_second"]
    assert throughput == document["throughput_bytes_per_second"]["median"]
    assert labels == {
        "config": "optimized",
        "problem": "1,000,000 rows per chunk, 2 workers",
        "engine": "polars",
        "exchange": "ucx",
        "hosts": "1",
        "options": "",
    }
    rows = list(csv.DictReader(io.StringIO(export(folder).stdout)))
    assert [float(row["wall_seconds"]) for row in rows[:3]] == [0.10, 0.11, 0.12]
    assert {row["sent_bytes"] for row in rows} == {str(2 * 12_000_000)}
    assert {row["verification"] for row in rows} == {"verified"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"distribution": "broadcast"}, "broadcast"),
        ({"pipeline": True}, "pipeline"),
        ({"runtime_filter": True}, "runtime filter"),
        ({"workload": {"name": "synthetic", "payload_columns": 4, "fraction": 0.3, "zipf": 0.0}}, "4 payload columns"),
        ({"workload": {"name": "synthetic", "fraction": 0.5}}, "match fraction 0.5"),
        ({"workload": {"name": "synthetic", "zipf": 1.25}}, "skew zipf:1.25"),
        ({"how": "left"}, "left join"),
    ],
)
def test_merges_that_differ_have_different_names(options: dict[str, object], named: str, tmp_path: Path) -> None:
    usual = write_campaign(tmp_path, Script(plan=plan()))
    other = write_campaign(tmp_path, Script(plan={**plan(), **options}))
    assert len(bencher(usual, other)) == 2
    assert [named in each for each in bencher(usual, other)] == [False, True]
    labels = [labels for labels, _ in samples(usual, other)["merge_bench_wall_seconds"]]
    assert labels[0] != labels[1]


def test_rows_of_several_results_say_how_they_were_merged(tmp_path: Path) -> None:
    first = write_campaign(tmp_path, Script(plan={**plan(), "how": "semi", "distribution": "broadcast"}))
    second = write_campaign(tmp_path, Script(plan={**plan(), "how": "inner", "distribution": "shuffle"}))
    rows = csv.DictReader(io.StringIO(export(first, second).stdout))
    ways = {(row["how"], row["distribution"]) for row in rows}
    assert ways == {("semi", "broadcast"), ("inner", "shuffle")}


def test_rows_of_several_results_say_what_was_merged(tmp_path: Path) -> None:
    columns = [{"name": "id", "source": "order_id"}]
    right = {"path": "data/lines", "rows": 10, "columns": columns}

    def merged(left: str) -> Path:
        frames = {"left": {"path": left, "rows": 400_000, "columns": [{"name": "id"}]}, "right": right}
        tables = {"name": "tables", "keys": ["id"], **frames}
        return write_campaign(tmp_path, Script(plan=plan(rows_per_chunk=None, workload=tables)))

    synthetic = write_campaign(tmp_path, Script(plan=plan(workload={"name": "synthetic", "fraction": 0.5})))
    rows = csv.DictReader(io.StringIO(export(merged("orders.parquet"), merged("old.parquet"), synthetic).stdout))
    assert {(row["problem"], row["options"]) for row in rows} == {
        ("orders.parquet ⋈ lines on id = order_id (400,000 / 10 rows), 2 workers", ""),
        ("old.parquet ⋈ lines on id = order_id (400,000 / 10 rows), 2 workers", ""),
        ("1,000,000 rows per chunk, 2 workers", "match fraction 0.5"),
    }


def test_columns_of_parquet_have_types_even_where_nothing_was_measured(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(plan=plan(exchange="dask")))
    export(folder, "--format", "parquet", "--output", tmp_path / "rows.parquet")
    schema = parquet.read_table(tmp_path / "rows.parquet").schema
    types = [schema.field(name).type for name in ("exchange_seconds", "sent_bytes", "complete", "config")]
    assert types == [pa.float64(), pa.int64(), pa.bool_(), pa.string()]


def test_results_that_are_wrong_or_unverified_are_marked(tmp_path: Path) -> None:
    wrong = write_campaign(tmp_path, Script(check=lambda check: msgspec.structs.replace(check, ok=False)))
    assert "is wrong" in export(wrong, "--format", "bencher", status=2).stderr
    gauges = samples(wrong)
    assert [value for _, value in gauges["merge_bench_verified"]] == [0.0]
    assert "merge_bench_wall_seconds" not in gauges
    assert ",wrong," in export(wrong).stdout
    unverified = write_campaign(tmp_path, Script(plan=plan(verify="off")))
    (name,) = bencher(unverified)
    assert name.endswith("(UNVERIFIED)")
    assert [value for _, value in samples(unverified)["merge_bench_verified"]] == [0.0]


def test_labels_and_cells_keep_every_character(tmp_path: Path) -> None:
    odd = 'a "b"\\\nc,d'
    folder = write_campaign(tmp_path, Script(config=odd, variables={"UCX_TLS": "tcp"}))
    assert {labels["config"] for labels, _ in samples(folder)["merge_bench_wall_seconds"]} == {odd}
    assert {row["config"] for row in csv.DictReader(io.StringIO(export(folder).stdout))} == {odd}
    (name,) = bencher(folder)
    assert name.startswith(odd)


def refused(*words: object) -> str:
    return export(*words, status=2).stderr


def test_what_a_format_cannot_express_is_one_sentence(tmp_path: Path) -> None:
    first, second = write_campaign(tmp_path), write_campaign(tmp_path)
    for format in ("bencher", "prometheus"):
        assert "has one value for each" in refused(first, second, "--format", format)
    assert "different columns" in refused(first, CAMPAIGNS / "p2p")
    assert "--output" in refused(first, "--format", "parquet")
    nothing = write_campaign(tmp_path, Script(walls=(), failure="run-failed", end_status=3))
    for format in ("csv", "bencher"):
        assert "contains no measurements" in refused(nothing, "--format", format)
    assert [value for _, value in samples(nothing)["merge_bench_failed_launches"]] == [1.0]
    assert len(list(csv.DictReader(io.StringIO(export(first, second).stdout)))) == 6


def test_a_file_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    target.write_text("before")
    refused(CAMPAIGNS / "nothing", "--format", "bencher", "--output", target)
    assert target.read_text() == "before"
    assert export(CAMPAIGNS / "run", "--format", "bencher", "--output", target).stdout == f"{target}\n"
    valid_for_bencher(json.loads(target.read_text()))
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


LINES = """
from merge_bench.view.export import Exporter

EXPORTER = Exporter("lines", help="the number of launches.", place=9,
                    encode=lambda campaigns: f"{len(campaigns[0].launches)} launches".encode())
"""


def test_one_file_more_is_one_format_more(tmp_path: Path) -> None:
    (tmp_path / "lines.py").write_text(LINES)
    done = run_with("merge_bench.view.export", tmp_path, "export", str(CAMPAIGNS / "run"), "--format", "lines")
    assert done.stdout == "1 launches"
    assert "the number of launches" in " ".join(
        run_with("merge_bench.view.export", tmp_path, "export", "--help").stdout.split()
    )


def test_every_format_is_described() -> None:
    text = (Path(__file__).parents[3] / "docs" / "results.md").read_text(encoding="utf-8")
    assert [name for name in exporters() if f"| `{name}` | " not in text] == []
