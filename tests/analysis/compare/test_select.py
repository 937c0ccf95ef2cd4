"""Which runs are compared, and which comparisons are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from merge_bench.analysis.comparable_runs import (
    NotComparable,
    RunPairSelection,
    property_differences,
    select_run_pairs,
)
from merge_bench.errors import UsageError, WrongResult
from merge_bench.host.description import Hardware, UcxDescription
from merge_bench.records import schema as s
from merge_bench.records.campaign import WAYS
from merge_bench.records.campaign import label_runs as named
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from tests.helpers.synthetic_campaigns import Script, interleaved, launches, write_campaign, write_head

SIX = [0.10, 0.11, 0.12, 0.10, 0.11, 0.12]


def selected(*folders: Path, anyway: bool = False) -> RunPairSelection:
    return select_run_pairs([read_campaign(folder) for folder in folders], allow_incomparable=anyway)


def labels(found: RunPairSelection) -> list[tuple[str, str]]:
    return [(pair.baseline.label, pair.candidate.label) for pair in found.pairs]


def on(scripts: list[Script], **changes: Any) -> list[Script]:
    """The same launches by workers of which something else is recorded."""

    def machine(worker: s.Worker) -> s.Worker:
        return msgspec.structs.replace(worker, **changes)

    return [replace(script, machine=machine) for script in scripts]


def test_the_configs_of_a_campaign_are_held_against_its_first(tmp_path: Path) -> None:
    found = selected(write_campaign(tmp_path, *interleaved({"base": SIX, "one": SIX, "two": SIX})))
    assert labels(found) == [("base", "one"), ("base", "two")]
    assert all(pair.is_within_one_campaign for pair in found.pairs)
    assert not any(pair.is_aa_comparison for pair in found.pairs)


def test_each_size_is_compared_by_itself(tmp_path: Path) -> None:
    small = interleaved({"base": SIX, "one": SIX})
    large = interleaved({"base": SIX, "one": SIX}, plan_index=1, first=12, rows_per_chunk=25_000_000)
    found = selected(write_campaign(tmp_path, *small, *large))
    assert [
        (pair.baseline.run.plan.rows_per_chunk, pair.candidate.run.plan.rows_per_chunk, pair.candidate.label)
        for pair in found.pairs
    ] == [(1_000_000, 1_000_000, "one"), (25_000_000, 25_000_000, "one")]


def test_a_size_that_only_one_config_ran_is_left_out(tmp_path: Path) -> None:
    small = interleaved({"base": SIX, "one": SIX})
    alone = interleaved({"one": SIX}, plan_index=1, first=12, rows_per_chunk=25_000_000)
    found = selected(write_campaign(tmp_path, *small, *alone))
    assert labels(found) == [("base", "one")]
    assert found.notes == ("one is not compared: no other run merges equal tables on as many workers",)


def test_a_config_under_two_names_is_an_aa_comparison(tmp_path: Path) -> None:
    scripts = [replace(script, variables={"UCX_TLS": "sm"}) for script in interleaved({"base": SIX, "again": SIX})]
    assert selected(write_campaign(tmp_path, *scripts)).pairs[0].is_aa_comparison


def test_the_same_config_in_two_campaigns_is_none(tmp_path: Path) -> None:
    found = selected(*(write_campaign(tmp_path, *launches(6)) for _ in range(2)))
    assert labels(found) == [("A: optimized", "B: optimized")]
    assert not found.pairs[0].is_aa_comparison
    assert not found.pairs[0].is_within_one_campaign


def test_runs_of_one_config_are_told_apart_by_their_options(tmp_path: Path) -> None:
    one = interleaved({"base": SIX})
    two = interleaved({"base": SIX}, plan_index=1, first=6, protocol="tls")
    found = selected(write_campaign(tmp_path, *one, *two))
    assert labels(found) == [("base (protocol tcp)", "base (protocol tls)")]


def test_between_campaigns_configs_meet_their_like_and_else_the_first(tmp_path: Path) -> None:
    first = write_campaign(tmp_path, *interleaved({"base": SIX, "tuned": SIX}))
    second = write_campaign(tmp_path, *interleaved({"tuned": SIX, "other": SIX}))
    third = write_campaign(tmp_path, *interleaved({"base": SIX}))
    assert labels(selected(first, second, third)) == [
        ("A: tuned", "B: tuned"),
        ("A: base", "B: other"),
        ("A: base", "C: base"),
    ]


def test_a_size_that_the_baseline_did_not_run_is_left_out(tmp_path: Path) -> None:
    first = write_campaign(tmp_path, *interleaved({"base": SIX}))
    large = interleaved({"big": SIX}, plan_index=1, first=6, workers=4)
    found = selected(first, write_campaign(tmp_path, *interleaved({"base": SIX}), *large))
    assert labels(found) == [("A: base", "B: base")]
    assert "B: big is not compared: no run of the baseline merges equal tables on as many workers" in found.notes


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda: interleaved({"base": SIX}, rows_per_chunk=25_000_000), "rows per chunk (1,000,000 and 25,000,000)"),
        (lambda: interleaved({"base": SIX}, workers=4), "workers (2 and 4)"),
        (lambda: interleaved({"base": SIX}, engine="pandas"), "engine (polars and pandas)"),
        (lambda: interleaved({"base": SIX}, workload={"name": "synthetic", "fraction": 0.5}), "workload fraction"),
        (lambda: on(interleaved({"base": SIX}), host="far"), "hosts (node0 and far)"),
        (
            lambda: on(
                interleaved({"base": SIX}), hardware=Hardware(cpu_model="AMD"), ucx=UcxDescription(version="1.20.0")
            ),
            "UCX version (1.21.0 and 1.20.0), cpu model (Intel and AMD)",
        ),
        (
            lambda: on(interleaved({"base": SIX}), hardware=Hardware(cpu_model="Intel", cpu_id="GenuineIntel-6-85-7")),
            "cpu id (GenuineIntel-6-207-2 and GenuineIntel-6-85-7)",
        ),
    ],
)
def test_what_is_not_comparable_is_refused_by_name_and_compared_anyway(
    tmp_path: Path, other: Callable[[], list[Script]], sentence: str
) -> None:
    intel = Hardware(cpu_model="Intel", cpu_id="GenuineIntel-6-207-2")
    known = {"hardware": intel, "ucx": UcxDescription(version="1.21.0")}
    mine = on(interleaved({"base": SIX}, workload={"name": "synthetic", "fraction": 0.3}), **known)
    folders = [write_campaign(tmp_path, *mine), write_campaign(tmp_path, *other())]
    with pytest.raises(NotComparable) as refused:
        selected(*folders)
    names = ("A: polars", "B: pandas") if sentence.startswith("engine") else ("A: base", "B: base")
    assert str(refused.value).startswith(f"not comparable: {' and '.join(names)} differ in ")
    assert sentence in str(refused.value)
    found = selected(*folders, anyway=True)
    assert labels(found)[0] == names
    assert any(note.startswith("compared despite this difference: ") and sentence in note for note in found.notes)


def test_results_of_different_engines_are_told_apart_and_the_right_way_is_named(tmp_path: Path) -> None:
    mine, other = interleaved({"base": SIX, "tcp": SIX}), interleaved({"base": SIX}, engine="pandas")
    folders = [write_campaign(tmp_path, *scripts) for scripts in (mine, other)]
    with pytest.raises(UsageError, match="run one campaign with all of them, such as --engine A,B"):
        selected(*folders)
    assert labels(selected(*folders, anyway=True)) == [("A: base with polars", "B: base with pandas")]


def test_engines_of_one_campaign_are_compared_with_the_first_at_each_size(tmp_path: Path) -> None:
    scripts = [
        script
        for at, (rows, engine) in enumerate([(10, "native"), (10, "polars"), (20, "native"), (20, "polars")])
        for script in interleaved({"base": SIX}, plan_index=at, first=6 * at, rows_per_chunk=rows, engine=engine)
    ]
    campaign = write_campaign(tmp_path, *scripts)
    assert labels(selected(campaign)) == [("native", "polars")] * 2
    only = interleaved({"base": SIX}, rows_per_chunk=10, engine="polars")
    assert labels(selected(campaign, write_campaign(tmp_path, *only))) == [("A: polars", "B: polars")]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("a", "native", "ucx", "p2p"), ("b", "native", "ucx", "p2p")], ["a", "b"]),
        ([("a", "native", "ucx", "p2p"), ("b", "polars", "ucx", "p2p")], ["a", "b"]),
        ([("a", "native", "ucx", "p2p"), ("a", "polars", "ucx", "p2p")], ["native", "polars"]),
        ([("a", "native", "ucx", "p2p"), ("a", "pandas", "dask", "p2p")], ["native over ucx", "pandas over dask"]),
        (
            [("a", "pandas", "ucx", "p2p"), ("a", "pandas", "dask", "p2p"), ("a", "pandas", "dask", "tasks")],
            ["ucx", "dask p2p", "dask tasks"],
        ),
        (
            [(name, engine, "ucx", "p2p") for name in "ab" for engine in ("native", "polars")],
            ["a with native", "a with polars", "b with native", "b with polars"],
        ),
        ([("a", None, None, None), ("a", "polars", "ucx", "p2p")], ["a", "a"]),
        ([("a", "native", "ucx", "p2p", ucx) for ucx in ("1.19.0", "wheel")], ["UCX 1.19.0", "UCX wheel"]),
        (
            [(name, "native", "ucx", "p2p", ucx) for name in "ab" for ucx in ("1.19.0", "/opt/ucx")],
            ["a with UCX 1.19.0", "a with UCX /opt/ucx", "b with UCX 1.19.0", "b with UCX /opt/ucx"],
        ),
        (
            [("a", engine, "ucx", "p2p", ucx) for engine in ("native", "polars") for ucx in ("1.19.0", "1.21.0")],
            [f"{engine} on UCX {ucx}" for engine in ("native", "polars") for ucx in ("1.19.0", "1.21.0")],
        ),
    ],
)
def test_runs_are_called_by_what_tells_them_apart(runs: list[tuple[str, ...]], expected: list[str]) -> None:
    assert named([(config, dict(zip(WAYS, ways, strict=False))) for config, *ways in runs]) == expected


def test_releases_of_ucx_are_compared_within_one_campaign_and_not_between_two(tmp_path: Path) -> None:
    def with_release(version: str, scripts: list[Script]) -> list[Script]:
        settings = {"UCX_TLS": "all", "UCX_PROTO_INFO": "n", f"UCX_ONLY_IN_{version[2:4]}": "1"}
        return on(
            scripts, ucx=UcxDescription(version=version, config=settings), environment={"MERGE_BENCH_UCX": version}
        )

    older = with_release("1.19.0", interleaved({"base": SIX}, ucx="1.19.0"))
    newer = with_release("1.21.0", interleaved({"base": SIX}, ucx="1.21.0", plan_index=1, first=6))
    (pair,) = selected(write_campaign(tmp_path, *older, *newer)).pairs
    assert (pair.baseline.label, pair.candidate.label) == ("UCX 1.19.0", "UCX 1.21.0")
    assert pair.disqualifying_differences == ()
    assert not pair.is_aa_comparison
    differing = property_differences(pair.baseline.properties, pair.candidate.properties)
    assert [(each.kind, each.name, each.baseline_value, each.candidate_value) for each in differing] == [
        ("UCX", "version", "1.19.0", "1.21.0")
    ]
    folders = [
        write_campaign(tmp_path, *with_release(each, interleaved({"base": SIX}))) for each in ("1.19.0", "1.21.0")
    ]
    with pytest.raises(NotComparable, match=r"to compare releases of UCX, run one campaign .* such as --ucx A,B$"):
        selected(*folders)


def test_another_seed_kernel_or_config_is_comparable(tmp_path: Path) -> None:
    mine = on(interleaved({"base": SIX}, workload={"name": "synthetic", "seed": 1}), hardware=Hardware(kernel="6.1"))
    other = on(interleaved({"base": SIX}, workload={"name": "synthetic", "seed": 2}), hardware=Hardware(kernel="6.2"))
    other = [replace(script, variables={"UCX_TLS": "tcp"}) for script in other]
    assert len(selected(write_campaign(tmp_path, *mine), write_campaign(tmp_path, *other)).pairs) == 1


def test_within_a_campaign_engines_and_exchanges_may_differ(tmp_path: Path) -> None:
    one = interleaved({"base": SIX})
    two = interleaved({"dask": SIX}, plan_index=1, first=6, exchange="dask", engine="pandas")
    assert labels(selected(write_campaign(tmp_path, *one, *two))) == [("base", "dask")]


def test_what_is_not_recorded_is_no_difference_and_is_told(tmp_path: Path) -> None:
    silent = write_campaign(tmp_path, *interleaved({"base": SIX}))
    telling = write_campaign(tmp_path, *on(interleaved({"base": SIX}), ucx=UcxDescription(version="1.21.0")))
    found = selected(silent, telling)
    assert "A: base: the records do not describe UCX, UCX settings, packages; these may differ" in found.notes


def test_one_run_is_compared_with_nothing(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, *launches(6))
    with pytest.raises(UsageError, match="contains only one run; name a second result"):
        selected(folder)
    with pytest.raises(UsageError, match="is named twice"):
        selected(folder, folder / "records.jsonl")


def test_a_network_measurement_holds_no_merges(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "probe") as writer:
        write_head(writer, [("base", 0)], [{"probe": "p2p"}])
    with pytest.raises(UsageError, match="contains no merges, only the network measurement p2p"):
        selected(writer.folder, write_campaign(tmp_path, *launches(6)))


def test_a_wrong_baseline_is_refused_even_anyway(tmp_path: Path) -> None:
    def wrong(check: s.VerificationLine) -> s.VerificationLine:
        return msgspec.structs.replace(check, ok=False)

    scripts = interleaved({"base": SIX, "one": SIX})
    scripts[2] = replace(scripts[2], check=wrong)
    folder = write_campaign(tmp_path, *scripts)
    with pytest.raises(WrongResult, match="the merge result of base was wrong"):
        selected(folder, anyway=True)


def test_a_baseline_that_never_ran_through_is_refused(tmp_path: Path) -> None:
    scripts = [
        replace(script, failure="rank 0 died") if script.config == "base" else script
        for script in interleaved({"base": SIX, "one": SIX})
    ]
    with pytest.raises(UsageError, match="base has no complete launch"):
        selected(write_campaign(tmp_path, *scripts))


def test_a_campaign_that_still_runs_is_compared_as_far_as_it_is(tmp_path: Path) -> None:
    scripts = interleaved({"base": SIX, "one": SIX})
    found = selected(write_campaign(tmp_path, *scripts[:7], end=None))
    assert found.notes == (
        "base: the records stop after 4 of 6 launches",
        "one: the records stop after 3 of 6 launches",
    )
    with CampaignWriter.create(tmp_path, "base") as writer:
        write_head(writer, [("base", 0), ("one", 0)], [scripts[0].plan])
    with pytest.raises(UsageError, match="base has no complete launch"):
        selected(writer.folder)
