"""The document, against numbers worked out from what `synthetic_campaigns` writes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from merge_bench.analysis.compare import compare_campaigns
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from tests.helpers.documents import plain
from tests.helpers.synthetic_campaigns import Script, interleaved, launches, plan, write_campaign

SIX = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15]  # a machine that gets slower
NOISE = [1.000, 1.001, 0.999, 1.002, 0.998, 1.000]
KEYS = [
    "pair",
    "baseline",
    "candidate",
    "baseline_result",
    "candidate_result",
    "plan",
    "metric",
    "unit",
    "verdict",
    "reason",
    "ratio",
    "interval",
    "confidence",
    "launches",
    "more_launches",
    "p",
    "p_holm",
    "threshold",
    "noise_floor",
    "level_of",
    "aa",
    "paired",
    "verified",
    "baseline_value",
    "candidate_value",
    "points",
    "caveats",
]


def document(*folders: Path, **options: Any) -> dict[str, Any]:
    """As it is printed."""
    return plain(compare_campaigns([read_campaign(folder) for folder in folders], **options))


def of(found: dict[str, Any], metric: str = "throughput", candidate: str | None = None) -> dict[str, Any]:
    """The one comparison of `metric`."""
    chosen = [
        each for each in found["comparisons"] if each["metric"] == metric and candidate in (None, each["candidate"])
    ]
    assert len(chosen) == 1
    return dict(chosen[0])


def faster(by: float, noise: Sequence[float] = NOISE) -> list[float]:
    return [wall / by * each for wall, each in zip(SIX, noise, strict=True)]


def ran(tmp_path: Path, **walls: Sequence[float]) -> Path:
    return write_campaign(tmp_path, *interleaved({"base": SIX, **walls}))


def failing(scripts: list[Script], config: str, *blocks: int) -> list[Script]:
    return [
        replace(script, failure="rank 0 died") if script.config == config and script.block in blocks else script
        for script in scripts
    ]


def on_busy_host(folder: Path, message: str = "other processes keep 1.9 of 2 cores busy") -> Path:
    """The campaign as if it had been measured beside other processes."""
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(msgspec.json.encode(s.WarningLine(code="busy-host", message=message)) + b"\n")
    return folder


def test_every_key_of_a_faster_config(tmp_path: Path) -> None:
    folder = ran(tmp_path, tuned=faster(1.25))
    found = document(folder)
    assert list(found) == [
        "document_version",
        "results",
        "threshold",
        "alpha",
        "comparisons",
        "differences",
        "notes",
        "verified",
        "error",
    ]
    assert found["document_version"] == 2
    assert found["results"] == [{"letter": None, "path": str(folder)}]
    assert [each["metric"] for each in found["comparisons"]] == [
        "throughput",
        "bandwidth",
        "wall",
        "partition",
        "exchange",
        "join",
    ]
    one = of(found)
    assert list(one) == KEYS
    ratios = [1.25 / noise for noise in NOISE]
    assert [point["block"] for point in one["points"]] == [0, 1, 2, 3, 4, 5]
    assert [point["ratio"] for point in one["points"]] == pytest.approx(ratios)
    # With 6 pairs the interval is the least and the largest ratio, and p is 2 ÷ 2⁶.
    assert one["interval"] == pytest.approx({"low": min(ratios), "high": max(ratios), "level": 0.95})
    assert one["ratio"] == pytest.approx(1.25, rel=1e-3)
    assert (one["p"], one["p_holm"], one["confidence"]) == (0.03125, 0.03125, 0.95)
    assert (one["verdict"], one["reason"], one["more_launches"]) == ("FASTER", None, None)
    assert (one["launches"], one["paired"], one["verified"], one["aa"]) == (6, True, True, False)
    assert one["plan"] == {"rows_per_chunk": 1_000_000, "workers": 2}
    # Medians of six launches, each its middle iteration: 64 MB ÷ wall.
    old = sorted(64e6 / wall for wall in SIX)
    assert one["baseline_value"] == {
        "median": pytest.approx((old[2] + old[3]) / 2),
        "ci95": pytest.approx([old[0], old[-1]]),
        "launches": 6,
        "failed_launches": 0,
    }


def test_more_is_better_for_rates_and_less_for_times(tmp_path: Path) -> None:
    found = document(ran(tmp_path, tuned=faster(1.25)))
    assert of(found, "wall")["ratio"] == pytest.approx(of(found, "throughput")["ratio"])
    assert of(found, "wall")["candidate_value"]["median"] < of(found, "wall")["baseline_value"]["median"]
    assert of(found, "wall")["verdict"] == "FASTER"


def test_pairing_takes_the_drift_out(tmp_path: Path) -> None:
    """The same numbers from two campaigns: the drift of half is then in the spread, and nothing is proven."""
    paired = of(document(ran(tmp_path, tuned=faster(1.05))))
    apart = document(
        write_campaign(tmp_path, *interleaved({"base": SIX})),
        write_campaign(tmp_path, *interleaved({"tuned": faster(1.05)})),
    )
    assert paired["verdict"] == "FASTER"
    assert of(apart)["verdict"] == "INCONCLUSIVE"
    assert of(apart)["reason"] == "wide-interval"
    assert of(apart)["more_launches"] > 10
    assert of(apart)["paired"] is False
    assert any("the launches were not interleaved" in note for note in apart["notes"])
    assert [point["launch"] for point in of(apart)["points"]] == list(range(6))
    assert not any("interleaved" in note for note in document(ran(tmp_path, tuned=faster(1.05)))["notes"])


@pytest.mark.parametrize(
    ("by", "threshold", "verdict"),
    [
        (1.05, 0.02, "FASTER"),
        (1.05, 0.10, "EQUIVALENT"),
        (1 / 1.05, 0.02, "SLOWER"),
        (1.001, 0.02, "EQUIVALENT"),
        (1.0195, 0.02, "INCONCLUSIVE"),
    ],
)
def test_the_threshold_decides_what_matters(tmp_path: Path, by: float, threshold: float, verdict: str) -> None:
    noise = [1.000, 1.001, 0.999, 1.002, 0.998, 1.0005]
    one = of(document(ran(tmp_path, tuned=faster(by, noise)), threshold=threshold))
    assert (one["verdict"], one["threshold"]) == (verdict, threshold)


def test_what_lies_at_the_threshold_is_never_settled(tmp_path: Path) -> None:
    one = of(document(ran(tmp_path, tuned=faster(1.0199))))
    assert (one["verdict"], one["reason"], one["more_launches"]) == ("INCONCLUSIVE", "wide-interval", None)


def test_few_launches_are_underpowered(tmp_path: Path) -> None:
    walls = {"base": SIX[:3], "tuned": [wall / 2 for wall in SIX[:3]]}
    one = of(document(write_campaign(tmp_path, *interleaved(walls))))
    assert (one["verdict"], one["reason"]) == ("INCONCLUSIVE", "underpowered")
    assert (one["interval"], one["p"], one["more_launches"]) == (None, 0.25, 4)
    assert one["ratio"] == pytest.approx(2.0)


def test_several_candidates_are_corrected_by_holm(tmp_path: Path) -> None:
    found = document(ran(tmp_path, one=faster(1.25), two=faster(1.25), three=faster(1.25)))
    for name in ("one", "two", "three"):
        each = of(found, candidate=name)
        assert each["p"] == 0.03125
        assert each["p_holm"] == 3 * 0.03125
        assert (each["verdict"], each["reason"]) == ("INCONCLUSIVE", "underpowered")
        assert each["confidence"] == pytest.approx(1 - 0.05 / 3)


def test_candidates_on_several_sizes_are_one_family(tmp_path: Path) -> None:
    walls = {"base": SIX, "tuned": faster(1.25)}
    large = interleaved(walls, plan_index=1, first=12, rows_per_chunk=25_000_000)
    found = document(write_campaign(tmp_path, *interleaved(walls), *large))
    both = [each for each in found["comparisons"] if each["metric"] == "throughput"]
    assert [each["plan"]["rows_per_chunk"] for each in both] == [1_000_000, 25_000_000]
    assert {each["p_holm"] for each in both} == {0.0625}


def test_an_aa_comparison_raises_what_counts_as_a_difference(tmp_path: Path) -> None:
    noisy = [1.00, 1.08, 0.95, 1.03, 0.98, 1.01]
    scripts = [
        replace(script, variables={"UCX_TLS": "base"}) if script.config == "again" else script
        for script in interleaved({"base": SIX, "again": faster(1.0, noisy), "tuned": faster(1.05)})
    ]
    found = document(write_campaign(tmp_path, *scripts))
    aa, tuned = of(found, candidate="again"), of(found, candidate="tuned")
    assert (aa["aa"], tuned["aa"]) == (True, False)
    assert aa["noise_floor"] == tuned["noise_floor"] == pytest.approx(0.08)
    assert (tuned["verdict"], tuned["reason"]) == ("INCONCLUSIVE", "within-noise")
    assert tuned["more_launches"] == 9  # 6 · (ln 1.08 ÷ ln 1.05)² = 14.9
    assert tuned["p_holm"] == tuned["p"]  # the A/A comparison is no candidate
    assert of(document(ran(tmp_path, tuned=faster(1.05))))["verdict"] == "FASTER"


def test_an_aa_comparison_alone_is_judged_like_any(tmp_path: Path) -> None:
    scripts = [replace(each, variables={}) for each in interleaved({"base": SIX, "again": faster(1.0)})]
    one = of(document(write_campaign(tmp_path, *scripts)))
    assert (one["verdict"], one["aa"]) == ("EQUIVALENT", False)
    assert one["noise_floor"] == pytest.approx(1 / 0.998 - 1, rel=1e-3)


def test_a_config_that_crashes_cannot_win(tmp_path: Path) -> None:
    nine = [0.1 + 0.01 * block for block in range(9)]
    walls = {"base": nine, "tuned": [wall / 1.25 for wall in nine]}
    found = document(write_campaign(tmp_path, *failing(interleaved(walls), "tuned", 3, 7)))
    one = of(found)
    assert (one["verdict"], one["reason"]) == ("FAILED", "2 of 9 launches failed")
    assert one["ratio"] == pytest.approx(1.25)
    assert one["launches"] == 7
    assert (one["candidate_value"]["launches"], one["candidate_value"]["failed_launches"]) == (7, 2)
    assert any(note.endswith("only one of them: 3, 7") for note in found["notes"])


def test_what_a_failed_launch_measured_before_is_in_no_ratio(tmp_path: Path) -> None:
    walls = {"base": [0.1] * 7, "tuned": [0.08] * 6 + [0.001]}
    scripts = [
        replace(each, end_status=3) if (each.config, each.block) == ("tuned", 6) else each
        for each in interleaved(walls)
    ]
    one = of(document(write_campaign(tmp_path, *scripts)))
    assert (one["verdict"], one["launches"]) == ("FAILED", 6)
    assert [point["ratio"] for point in one["points"]] == pytest.approx([1.25] * 6)


def test_a_config_that_crashes_can_lose(tmp_path: Path) -> None:
    nine = [0.1 + 0.01 * block for block in range(9)]
    walls = {"base": nine, "tuned": [wall * 1.25 for wall in nine]}
    assert of(document(write_campaign(tmp_path, *failing(interleaved(walls), "tuned", 3))))["verdict"] == "SLOWER"


def test_a_config_that_always_crashes_has_no_numbers(tmp_path: Path) -> None:
    scripts = failing(interleaved({"base": SIX, "bad": SIX, "tuned": faster(1.25)}), "bad", *range(6))
    found = document(write_campaign(tmp_path, *scripts))
    bad, tuned = of(found, candidate="bad"), of(found, candidate="tuned")
    assert (bad["verdict"], bad["reason"], bad["ratio"]) == ("FAILED", "6 of 6 launches failed", None)
    assert (bad["launches"], bad["p"], bad["points"], bad["candidate_value"]["median"]) == (0, None, [], None)
    assert tuned["p_holm"] == 2 * tuned["p"]  # it was to be compared


def test_a_baseline_that_crashes_is_told_and_loses_its_blocks(tmp_path: Path) -> None:
    nine = [0.1 + 0.01 * block for block in range(9)]
    scripts = failing(interleaved({"base": nine, "tuned": [wall / 1.25 for wall in nine]}), "base", 0)
    found = document(write_campaign(tmp_path, *scripts))
    assert (of(found)["verdict"], of(found)["launches"]) == ("FASTER", 8)
    assert "base: 1 of 9 launches failed" in found["notes"]


def test_a_wrong_result_has_no_numbers(tmp_path: Path) -> None:
    def wrong(check: s.VerificationLine) -> s.VerificationLine:
        return msgspec.structs.replace(check, ok=False)

    scripts = interleaved({"base": SIX, "tuned": faster(1.25)})
    scripts[5] = replace(scripts[5], check=wrong)
    one = of(document(write_campaign(tmp_path, *scripts)))
    assert (one["verdict"], one["reason"]) == ("WRONG", "the merge result was wrong")
    assert (one["ratio"], one["candidate_value"], one["points"]) == (None, None, [])


def test_unverified_numbers_are_marked(tmp_path: Path) -> None:
    scripts = interleaved({"base": SIX, "tuned": faster(1.25)}, verify="off")
    found = document(write_campaign(tmp_path, *scripts))
    assert (found["verified"], of(found)["verified"]) == (False, False)
    assert "tuned is not verified; its merge result may be wrong" in found["notes"]


def test_a_busy_host_is_named(tmp_path: Path) -> None:
    one, two = (write_campaign(tmp_path / name, *launches(6)) for name in "ab")
    message = "other processes keep 1.9 of 2 cores busy"
    on_busy_host(one, message)
    found = compare_campaigns([read_campaign(one), read_campaign(two)])
    assert found.notes[0] == f"A: measured on a busy host: {message}"
    assert not any("B: measured on a busy host" in note for note in found.notes)
    assert {each.verdict: each.caveats for each in found.comparisons} == {
        "EQUIVALENT": [
            "A was measured while other processes kept the host's cores busy, so a difference may be hidden"
        ],
        "INCONCLUSIVE": ["A was measured while other processes kept the host's cores busy, so launches vary more"],
    }


def test_metrics_that_were_not_measured_are_left_out_with_a_note(tmp_path: Path) -> None:
    """Dask's own merge tells nothing of single workers."""
    scripts = interleaved({"base": SIX, "tuned": faster(1.25)}, exchange="dask")
    found = document(write_campaign(tmp_path, *scripts))
    assert [each["metric"] for each in found["comparisons"]] == ["throughput", "wall"]
    for name in ("bandwidth", "partition", "exchange", "join"):
        assert f"{name} is not compared: base has no value of it" in found["notes"]


def test_a_phase_without_time_has_no_ratio(tmp_path: Path) -> None:
    def instant(worker: s.WorkerIteration) -> s.WorkerIteration:
        return msgspec.structs.replace(worker, phases_seconds=s.PhaseSeconds(partition=0.0, exchange=0.03, join=0.04))

    scripts = [replace(each, worker=instant) for each in interleaved({"base": SIX, "tuned": SIX})]
    found = document(write_campaign(tmp_path, *scripts))
    assert "partition" not in {each["metric"] for each in found["comparisons"]}
    assert "partition is not compared: base has no value of it" in found["notes"]
    some = [replace(each, worker=instant) if each.block == 2 else each for each in scripts]
    some = [each if each.block == 2 else replace(each, worker=lambda worker: worker) for each in some]
    found = document(write_campaign(tmp_path, *some))
    assert of(found, "partition")["launches"] == 5
    assert "base: partition is missing in 1 of 6 launches" in found["notes"]


def test_several_launches_of_a_block_are_one_value(tmp_path: Path) -> None:
    once, again = interleaved({"base": SIX, "tuned": faster(1.25)}), interleaved({"base": SIX}, first=12)
    doubled = [replace(each, walls=tuple(1.5 * wall for wall in each.walls), plan=once[0].plan) for each in again]
    one = of(document(write_campaign(tmp_path, *once, *doubled)))
    # The baseline's two launches have w and 1.5 w: the middle of their logarithms is √1.5 · w.
    assert one["ratio"] == pytest.approx(1.25 * math.sqrt(1.5), rel=1e-3)
    assert (one["launches"], one["baseline_value"]["launches"]) == (6, 12)


def test_launches_that_share_no_blocks_are_not_paired(tmp_path: Path) -> None:
    """One config after the other: all of it in a block of its own."""
    scripts = interleaved({"base": SIX, "tuned": faster(1.25)})
    after = [replace(each, block=int(each.config == "tuned")) for each in scripts]
    found = document(write_campaign(tmp_path, *after))
    assert of(found)["paired"] is False
    assert any("not interleaved" in note for note in found["notes"])


def test_problems_are_told_apart_in_the_plan(tmp_path: Path) -> None:
    walls = {"base": SIX, "tuned": faster(1.25)}
    thin = interleaved(walls, workload={"name": "synthetic", "fraction": 0.1})
    fat = interleaved(walls, plan_index=1, first=12, workload={"name": "synthetic", "fraction": 0.9})
    found = document(write_campaign(tmp_path, *thin, *fat))
    plans = [each["plan"] for each in found["comparisons"] if each["metric"] == "wall"]
    assert plans == [{"rows_per_chunk": 1_000_000, "workers": 2, "workload fraction": x} for x in ("0.1", "0.9")]
    assert plan()["workers"] == 2
