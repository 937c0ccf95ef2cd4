"""In what runs differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from merge_bench.analysis.comparable_runs import have_same_problem
from merge_bench.campaign.importing import import_file
from merge_bench.host.description import Hardware, UcxDescription
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import remove_table_names
from tests.analysis.compare.test_document import SIX, document
from tests.campaign.importing.texts import text
from tests.helpers.synthetic_campaigns import Script, interleaved, plan, write_campaign


def test_what_differs_between_the_runs_is_listed(tmp_path: Path) -> None:
    def machine(config: str) -> dict[str, Any]:
        settings = {"UCX_TLS": config, "UCX_RNDV_THRESH": "8K" if config == "tuned" else "auto", "UCX_X": "1"}
        return {
            "ucx": {"version": "1.21.0", "config": settings},
            "versions": {"polars": "2.0" if config == "tuned" else "1.9", "numpy": "2.4"},
            "hardware": {"kernel": "6.1", "available_bytes": 7 + len(config)},
            "environment": {"UCX_TLS": config, "MERGE_BENCH_PARENT": config},
        }

    scripts = [
        replace(
            each,
            machine=lambda worker, config=each.config: msgspec.structs.replace(worker, **machine(config)),
        )
        for each in interleaved({"base": SIX, "tuned": SIX})
    ]
    found = document(write_campaign(tmp_path, *scripts))
    assert [
        (each["kind"], each["name"], each["baseline_value"], each["candidate_value"]) for each in found["differences"]
    ] == [
        ("config", "UCX_TLS", "base", "tuned"),
        ("UCX setting", "UCX_RNDV_THRESH", "auto", "8K"),
        ("package", "polars", "1.9", "2.0"),
    ]
    assert {each["pair"] for each in found["differences"]} == {0}


def test_phases_at_once_are_a_difference_and_plans_of_before_had_them_apart(tmp_path: Path) -> None:
    def found(*pipelines: dict[str, bool]) -> list[tuple[str, ...]]:
        folders = [write_campaign(tmp_path, Script(plan={**plan(), **each})) for each in pipelines]
        differences = document(*folders)["differences"]
        return [(each["name"], each["baseline_value"], each["candidate_value"]) for each in differences]

    assert ("pipeline", "no", "yes") in found({}, {"pipeline": True})
    assert "pipeline" not in [name for name, *_ in found({"pipeline": False}, {})]


def test_distributions_are_a_difference_between_runs_that_can_be_compared(tmp_path: Path) -> None:
    """Plans of before had shuffles; why ``auto`` chose one is no difference."""
    reasons = {"distribution": "shuffle", "distribution_reason": "a shuffle sends less"}
    whole = {"distribution": "broadcast", "broadcast_side": "right", "distribution_reason": "a broadcast sends less"}
    folders = [write_campaign(tmp_path, Script(plan=plan(**each))) for each in ({}, reasons, whole)]

    def found(*folders: Path) -> set[tuple[str, ...]]:
        differences = document(*folders)["differences"]
        return {(each["name"], each["baseline_value"], each["candidate_value"]) for each in differences}

    assert not {name for name, *_ in found(*folders[:2])} & {"distribution", "distribution_reason", "broadcast_side"}
    assert ("distribution", "shuffle", "broadcast") in found(folders[0], folders[2])
    assert document(folders[0], folders[2])["comparisons"]


def test_ways_of_writing_parcels_are_a_difference_and_there_was_one_before(tmp_path: Path) -> None:
    """What was asked for, and what each host's measurement chose."""

    def found(*ways: str | None) -> list[tuple[str, ...]]:
        folders = [
            write_campaign(
                tmp_path,
                Script(
                    plan={**plan(), **({"stores": "auto"} if way else {})},
                    machine=lambda worker, way=way: msgspec.structs.replace(
                        worker, stores=s.ParcelWriteMethod(way=way, because="measured") if way else None
                    ),
                ),
            )
            for way in ways
        ]
        differences = document(*folders)["differences"]
        return [(each["name"], each["baseline_value"], each["candidate_value"]) for each in differences]

    assert ("partition writes in use", "plain", "streaming") in found("plain", "lines")
    assert {("partition writes", "plain", "auto"), ("partition writes in use", None, "streaming")} <= set(
        found(None, "lines")
    )
    assert "writes" not in " ".join(name for name, *_ in found("lines", "lines"))


def test_a_setting_that_ucx_did_not_take_is_told(tmp_path: Path) -> None:
    def machine(worker: s.Worker) -> s.Worker:
        return msgspec.structs.replace(worker, ucx=UcxDescription(version="1.21.0", config={"UCX_TLS": "all"}))

    scripts = [replace(each, machine=machine) for each in interleaved({"base": SIX, "tuned": SIX})]
    found = document(write_campaign(tmp_path, *scripts))
    assert "the configs set different values of UCX_TLS, but both runs used UCX_TLS=all" in found["notes"]


@pytest.mark.parametrize(
    ("one", "other", "differing"),
    [
        (("/data/a", None), ("/data/a", None), None),
        (("/data/a", None), ("/data/b", None), ("path", "/data/a", "/data/b")),
        (("/data/a", None), ("/data/a", "f1"), None),
        (("/data/a", None), ("../a", "f1"), ("path", "/data/a", "../a")),
        (("/data/a", "f1"), ("../a", "f1"), None),
        (("/data/a", "f1"), ("/data/a", "f2"), ("content", "f1", "f2")),
    ],
)
def test_tables_are_told_by_what_they_are_and_by_their_paths_where_that_is_not_recorded(
    tmp_path: Path, one: tuple[str, Any], other: tuple[str, Any], differing: tuple[str, str, str] | None
) -> None:
    def folder(place: str, path: str, fingerprint: str | None) -> Path:
        table = {
            "path": path,
            "rows": 1000,
            "files": [path],
            "columns": [{"name": "id"}, {"name": "v"}],
            "chunks": [[]],
            **({"fingerprint": fingerprint} if fingerprint else {}),
        }
        workload = {"name": "tables", "keys": ["id"], "left": table, "right": {**table, "path": "r"}, "warnings": []}
        return write_campaign(tmp_path / place, *interleaved({"base": SIX}, rows_per_chunk=None, workload=workload))

    folders = [folder("1", *one), folder("2", *other)]
    found = document(*folders, allow_incomparable=True)["differences"]
    named = [(each["name"], each["baseline_value"], each["candidate_value"]) for each in found]
    wanted = [] if differing is None else [(f"workload left {differing[0]}", *differing[1:])]
    assert [each for each in named if each[0].startswith("workload left")] == wanted
    runs = [read_campaign(each).runs[0] for each in folders]
    assert have_same_problem(*runs) == (differing is None)
    plans = [remove_table_names(run.options) for run in runs]
    if None not in (one[1], other[1]):
        assert (plans[0] == plans[1]) == (one[1] == other[1])


def test_what_varies_within_a_run_is_shown_whole(tmp_path: Path) -> None:
    def machine(worker: s.Worker) -> s.Worker:
        return msgspec.structs.replace(worker, hardware=Hardware(affinity=str(worker.rank)))

    def same(worker: s.Worker) -> s.Worker:
        return msgspec.structs.replace(worker, hardware=Hardware(affinity="0-1"))

    one = write_campaign(tmp_path, *(replace(each, machine=machine) for each in interleaved({"base": SIX})))
    two = write_campaign(tmp_path, *(replace(each, machine=same) for each in interleaved({"base": SIX})))
    found = document(one, two)
    assert [(each["name"], each["baseline_value"], each["candidate_value"]) for each in found["differences"]] == [
        ("affinity", "0 / 1", "0-1")
    ]


def test_imported_texts_are_compared_in_what_they_tell(tmp_path: Path) -> None:
    def brought_in(name: str) -> Path:
        file = tmp_path / name
        file.write_text(text())
        return import_file(file, tmp_path / "results")

    found = document(brought_in("a.out"), brought_in("b.out"))
    assert [each["metric"] for each in found["comparisons"]] == ["throughput", "bandwidth", "wall"]
    assert all(each["baseline_value"]["median"] > 0 for each in found["comparisons"])
    assert found["differences"] == []  # the commit that imported them is none of theirs
    assert not found["verified"]
    assert "A: a: the records do not describe machine, UCX, UCX settings, packages; these may differ" in found["notes"]
    assert "join is not compared: A: a has no value of it" in found["notes"]
