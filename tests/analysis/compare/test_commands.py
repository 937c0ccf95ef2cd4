"""Campaigns of a command: its own metrics, verdicts, failures, and what is comparable with what."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_bench.analysis.comparable_runs import NotComparable, NothingToCompare
from merge_bench.analysis.compare import METRICS, common_metrics, compare_campaigns, main_metric
from merge_bench.records.reader import read_campaign
from merge_bench.regressions.gates import RegressionGate
from tests.analysis.compare.test_document import NOISE, SIX, document, of
from tests.helpers.command_campaigns import BUSBW, WALL, command_plan, interleaved_runs, write_commands
from tests.helpers.command_line import exit_status
from tests.helpers.synthetic_campaigns import interleaved, write_campaign

FAST = [wall / 1.25 * noise for wall, noise in zip(SIX, NOISE, strict=True)]
RATES = [10.0, 9.9, 10.1, 10.0, 9.8, 10.2]
FAILURES = ("command-failed", "check-failed", "command-timeout", "metric-missing")


def ran(tmp_path: Path, *, by: float = 1.25, **more: Any) -> Path:
    """Two configs; `tuned` moves `by` times the bytes per second in the same time."""
    rates = {"base": RATES, "tuned": [by * rate * noise for rate, noise in zip(RATES, NOISE, strict=True)]}
    return write_commands(tmp_path, interleaved_runs({"base": SIX, "tuned": SIX}, {"busbw": rates}, **more))


def test_a_command_is_compared_in_its_own_metrics_the_main_one_first(tmp_path: Path) -> None:
    found = document(ran(tmp_path))
    assert [(each["metric"], each["unit"]) for each in found["comparisons"]] == [("busbw", "GB/s"), ("wall", "s")]
    busbw, wall = found["comparisons"]
    assert busbw["ratio"] == pytest.approx(1.25, rel=2e-3)
    assert (busbw["verdict"], busbw["paired"], busbw["verified"], busbw["launches"]) == ("FASTER", True, True, 6)
    assert busbw["baseline_value"]["median"] == pytest.approx(10.0)
    assert (wall["verdict"], wall["ratio"]) == ("EQUIVALENT", 1.0)
    assert busbw["plan"] == {"rows_per_chunk": None, "workers": None}
    assert found["notes"] == []
    assert [(each["name"], each["candidate_value"]) for each in found["differences"]] == [("UCX_TLS", "tuned")]


def test_less_is_better_of_times_and_of_what_is_said_to_be(tmp_path: Path) -> None:
    latency = {"name": "latency", "unit": "us", "better": "less", "source": "re:(.*)", "pick": "median"}
    runs = interleaved_runs({"base": SIX, "tuned": FAST}, {"latency": {"base": RATES, "tuned": RATES[::-1]}})
    found = document(write_commands(tmp_path, runs, plan=command_plan(metrics=[WALL, latency])))
    assert [each["metric"] for each in found["comparisons"]] == ["wall", "latency"]
    assert (of(found, "wall")["verdict"], of(found, "wall")["ratio"]) == ("FASTER", pytest.approx(1.25, rel=2e-3))
    twice = {"base": RATES, "tuned": [2 * rate for rate in RATES]}
    runs = interleaved_runs({"base": SIX, "tuned": SIX}, {"latency": twice})
    found = document(write_commands(tmp_path, runs, plan=command_plan(metrics=[latency, WALL])))
    assert (of(found, "latency")["verdict"], of(found, "latency")["ratio"]) == ("SLOWER", pytest.approx(0.5))


def test_the_wall_clock_is_measured_of_every_command(tmp_path: Path) -> None:
    folder = write_commands(tmp_path, interleaved_runs({"base": SIX, "tuned": FAST}), plan=command_plan(metrics=[]))
    runs = read_campaign(folder).runs
    assert [metric.name for metric in common_metrics(runs)] == [main_metric(runs[0]).name] == ["wall"]
    assert of(document(folder), "wall")["verdict"] == "FASTER"
    assert common_metrics([]) == METRICS


@pytest.mark.parametrize("code", FAILURES)
def test_a_config_with_a_failed_launch_cannot_win(tmp_path: Path, code: str) -> None:
    found = document(ran(tmp_path, failures={("tuned", 3): code}))
    assert {each["verdict"] for each in found["comparisons"]} == {"FAILED"}
    assert of(found, "busbw")["reason"] == "1 of 6 launches failed"
    assert of(found, "busbw")["candidate_value"]["failed_launches"] == 1
    assert of(found, "busbw")["launches"] == 5  # what the failed launch printed does not count
    gate = RegressionGate(None, ("slower",), 0.02)
    assert gate.judge_campaign(read_campaign(ran(tmp_path, failures={("tuned", 3): code})))[1] == 5


def test_a_config_that_never_went_well_has_no_figures(tmp_path: Path) -> None:
    found = document(ran(tmp_path, failures=dict.fromkeys([("tuned", block) for block in range(6)], "check-failed")))
    assert [(each["verdict"], each["ratio"]) for each in found["comparisons"]] == [("FAILED", None)] * 2
    with pytest.raises(NothingToCompare, match="base has no complete launch"):
        document(ran(tmp_path, failures=dict.fromkeys([("base", block) for block in range(6)], "check-failed")))


def test_a_config_that_fails_and_is_slower_is_slower(tmp_path: Path) -> None:
    walls = [*SIX, 0.16]
    rates = {"base": [10.0] * 7, "tuned": [5.0 + 0.01 * block for block in range(7)]}
    runs = interleaved_runs({"base": walls, "tuned": walls}, {"busbw": rates}, failures={("tuned", 0): "check-failed"})
    assert of(document(write_commands(tmp_path, runs)), "busbw")["verdict"] == "SLOWER"


def test_failures_of_the_baseline_are_named(tmp_path: Path) -> None:
    found = document(ran(tmp_path, failures={("base", 1): "command-timeout"}))
    assert "base: 1 of 6 launches failed" in found["notes"]
    assert (of(found, "busbw")["baseline_value"]["launches"], of(found, "busbw")["caveats"]) == (5, [])


def test_a_baseline_with_a_failed_launch_cannot_win_either(tmp_path: Path) -> None:
    walls = [*SIX, 0.16]
    rates = {"base": [10.0] * 7, "tuned": [5.0 + 0.01 * block for block in range(7)]}
    runs = interleaved_runs({"base": walls, "tuned": walls}, {"busbw": rates}, failures={("base", 0): "check-failed"})
    busbw = of(document(write_commands(tmp_path, runs)), "busbw")
    assert busbw["verdict"] == "SLOWER"
    assert busbw["caveats"] == ["base is no better choice, because 1 of 7 launches failed"]


def test_a_config_that_is_there_twice_shows_the_noise(tmp_path: Path) -> None:
    same = {"UCX_TLS": "tcp"}
    rates = {
        "base": RATES,
        "again": [rate * factor for rate, factor in zip(RATES, (1.08, 0.93, 1.02, 0.97, 1.05, 0.95), strict=True)],
        "tuned": [1.05 * rate for rate in RATES],
    }
    runs = interleaved_runs(dict.fromkeys(rates, SIX), {"busbw": rates})
    found = document(write_commands(tmp_path, runs, variables={"base": same, "again": same}))
    aa, tuned = of(found, "busbw", "again"), of(found, "busbw", "tuned")
    assert (aa["aa"], tuned["aa"]) == (True, False)
    assert aa["noise_floor"] == tuned["noise_floor"] > 0.05
    assert (tuned["verdict"], tuned["reason"]) == ("INCONCLUSIVE", "within-noise")


def test_a_value_of_0_has_no_ratio(tmp_path: Path) -> None:
    rates = {"base": RATES, "tuned": [0.0, *RATES[1:]]}
    found = document(write_commands(tmp_path, interleaved_runs({"base": SIX, "tuned": SIX}, {"busbw": rates})))
    assert of(found, "busbw")["launches"] == 5
    assert "tuned: busbw is missing, or not above 0, in 1 of 6 launches" in found["notes"]


def test_two_results_of_one_command(tmp_path: Path) -> None:
    old, new = ran(tmp_path), ran(tmp_path, by=0.5)
    found = document(old, new)
    named = {each["candidate"]: each for each in found["comparisons"] if each["metric"] == "busbw"}
    assert {name: (each["verdict"], each["paired"]) for name, each in named.items()} == {
        "B: base": ("INCONCLUSIVE", False),
        "B: tuned": ("SLOWER", False),
    }
    assert named["B: tuned"]["baseline"] == "A: tuned"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("command", {"argv": ["./bench", "-n", "4"]}),
        ("checks", {"checks": []}),
        ("metrics", {"metrics": [BUSBW | {"unit": "GiB/s"}, WALL]}),
        ("metrics", {"metrics": [BUSBW | {"better": "less"}, WALL]}),
        (None, {"timeout": 60.0}),
        (None, {"metrics": [WALL, BUSBW | {"pick": "median"}]}),
    ],
)
def test_only_the_same_command_measured_alike_is_comparable(
    tmp_path: Path, name: str | None, changes: dict[str, Any]
) -> None:
    runs = interleaved_runs({"base": SIX}, {"busbw": {"base": RATES}})
    folders = [write_commands(tmp_path, runs, plan=plan) for plan in (command_plan(), command_plan(**changes))]
    if name is None:
        found = document(*folders)
        assert "option" in {each["kind"] for each in found["differences"]}
    else:
        with pytest.raises(NotComparable, match=f"differ in {name} "):
            document(*folders)
        found = document(*folders, allow_incomparable=True)
    names = [each["metric"] for each in found["comparisons"]]
    assert names == (["wall"] if name == "metrics" else ["busbw", "wall"])


def test_another_release_of_ucx_is_named(tmp_path: Path) -> None:
    runs = interleaved_runs({"base": SIX}, {"busbw": {"base": RATES}})
    folders = [write_commands(tmp_path, runs, ucx=ucx) for ucx in ("1.20.0", "1.21.0")]
    found = document(*folders, allow_incomparable=True)
    assert ("UCX", "version", "1.20.0", "1.21.0") in {
        (each["kind"], each["name"], each["baseline_value"], each["candidate_value"]) for each in found["differences"]
    }


def test_a_merge_and_a_command_have_no_common_metric(tmp_path: Path) -> None:
    merges, commands = write_campaign(tmp_path, *interleaved({"base": SIX})), ran(tmp_path)
    for folders in ([merges, commands], [commands, merges]):
        with pytest.raises(NothingToCompare, match=f"{merges} contains merges and {commands} runs of a command"):
            document(*folders, allow_incomparable=True)


def test_gates_use_the_main_metric(tmp_path: Path) -> None:
    slower, same = read_campaign(ran(tmp_path, by=0.8)), read_campaign(ran(tmp_path, by=1.0))
    gate = RegressionGate(None, ("slower",), 0.02)
    found, status = gate.judge_campaign(slower)
    assert (status, found.error and found.error.message) == (5, "--fail-on slower: tuned is SLOWER in busbw")
    assert gate.judge_campaign(same)[1] == 0
    found, status = RegressionGate(same, ("slower",), 0.02).judge_campaign(slower)
    assert (status, found.error and "B: tuned is SLOWER in busbw" in found.error.message) == (5, True)
    merge = read_campaign(write_campaign(tmp_path, *interleaved({"base": SIX})))
    found, status = RegressionGate(merge, ("slower",), 0.02).judge_campaign(slower)
    assert (status, found.error and found.error.code) == (5, "nothing-compared")


def test_the_command_line_takes_the_main_metric_or_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ran(tmp_path, by=0.8)
    assert exit_status("compare", folder, "--json", "--fail-on", "slower") == 5
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "--fail-on slower: tuned is SLOWER in busbw"
    assert exit_status("compare", folder, "--json", "--fail-on", "slower", "--metric", "wall") == 0
    assert exit_status("compare", folder, "--json", "--metric", "throughput") == 2
    assert "metric 'throughput' is none of busbw, wall" in capsys.readouterr().err


def test_no_sentence_about_a_command_speaks_of_merges(tmp_path: Path) -> None:
    every = {("base", 0): "interrupted", ("tuned", 1): "check-failed"}
    apart = write_commands(
        tmp_path,
        interleaved_runs({"base": SIX}, {"busbw": {"base": RATES}}),
        plan=command_plan(argv=["./other"]),
    )
    texts = [json.dumps(document(ran(tmp_path, failures=every)))]
    texts.append(json.dumps(document(ran(tmp_path), apart, allow_incomparable=True)))
    for text in texts:
        assert "merge" not in text.replace("merge_bench", "").replace(str(tmp_path), "")


# A/A: two configs that change nothing, over which noise of three kinds is spread.

Noise = Callable[[np.random.Generator, int], "np.ndarray[Any, np.dtype[np.float64]]"]


def normal(rng: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Each launch takes 3 % more or less, by a normal distribution."""
    return np.log(np.maximum(1.0 + 0.03 * rng.standard_normal(count), 0.5))


def heavy_tails(rng: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Student's t with 2 degrees of freedom, which has no variance."""
    return 0.02 * rng.standard_t(2, count)


def two_states(rng: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A machine that is a quarter slower for some launches in a row, as with other memory or another clock."""
    changes = rng.random(count) < 0.3
    return np.log(1.25) * (np.cumsum(changes) % 2) + 0.005 * rng.standard_normal(count)


def verdicts_of_campaigns(folder: Path, noise: Noise, count: int, seed: int, *, gain: float = 1.0) -> Counter[str]:
    """The verdicts on the main metric of `count` campaigns of eight blocks; `same` is `gain` times as fast."""
    rng, order = np.random.default_rng(seed), random.Random(seed)
    verdicts: Counter[str] = Counter()
    for _ in range(count):
        runs = interleaved_runs(dict.fromkeys(("base", "same"), [1.0] * 8), order=order)
        factors = np.exp(noise(rng, len(runs)))
        walls = [
            float(factor) / (gain if run.config == "same" else 1.0) for run, factor in zip(runs, factors, strict=True)
        ]
        made = [replace(run, wall=wall, values={"busbw": 10.0 / wall}) for run, wall in zip(runs, walls, strict=True)]
        campaign = read_campaign(write_commands(folder, made, configs=("base", "same")))
        found = compare_campaigns([campaign]).comparisons
        assert [each.metric for each in found] == ["busbw", "wall"]
        assert math.isclose(found[0].ratio or 0.0, found[1].ratio or 0.0)  # the one is made of the other
        verdicts[found[0].verdict] += 1
    return verdicts


@pytest.mark.parametrize("noise", [normal, heavy_tails, two_states])
def test_configs_that_are_alike_are_hardly_ever_told_apart(tmp_path: Path, noise: Noise) -> None:
    verdicts = verdicts_of_campaigns(tmp_path, noise, 20, seed=1)
    print(f"{noise.__name__}: {dict(verdicts)}")
    assert verdicts["FASTER"] + verdicts["SLOWER"] <= 1
    assert sum(verdicts.values()) == 20


@pytest.mark.soak
@pytest.mark.parametrize("noise", [normal, heavy_tails, two_states])
def test_of_200_campaigns_of_alike_configs_at_most_5_percent_have_a_verdict(tmp_path: Path, noise: Noise) -> None:
    verdicts = verdicts_of_campaigns(tmp_path, noise, 200, seed=2)
    print(f"{noise.__name__}: {dict(verdicts)}")
    assert verdicts["FASTER"] + verdicts["SLOWER"] <= 10


@pytest.mark.parametrize(("noise", "gain"), [(normal, 1.1), (heavy_tails, 1.15), (two_states, 1.4)])
def test_a_config_that_is_faster_is_mostly_found(tmp_path: Path, noise: Noise, gain: float) -> None:
    verdicts = verdicts_of_campaigns(tmp_path, noise, 20, seed=3, gain=gain)
    print(f"{noise.__name__}: {dict(verdicts)}")
    assert verdicts["FASTER"] >= 16
    assert verdicts["SLOWER"] == verdicts["EQUIVALENT"] == 0
