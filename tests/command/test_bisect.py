"""`bisect`: which releases it ends with, on made-up numbers and with a command that some releases slow down."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from merge_bench.analysis.statistics import Effect, paired_effect
from merge_bench.analysis.statistics.verdict import ALPHA
from merge_bench.command.bisect import ALIKE, LEAST, NO_TIME, Bisection, bisect_releases, planned_looks
from merge_bench.command.bisect_campaign import changed_settings, expand_releases
from merge_bench.config.parsers import parse_ucx_releases
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from tests.helpers.command_line import exit_status
from tests.helpers.ucx_wheels import put_into_cache

RELEASES = ["1.19.0", "1.19.1", "1.20.0", "1.20.1", "1.21.0", "1.22.0"]
NOISE = 0.04
SEEDS = range(20)


def measured(seed: int, seconds: Callable[[str], float]) -> Callable[[str, str, int], tuple[Effect, str]]:
    """Measures as a campaign would: more launches of a pair are added to those that it has."""
    numbers = random.Random(seed)

    @functools.cache
    def log_ratio(baseline: str, candidate: str, block: int) -> float:
        noise = numbers.gauss(0.0, NOISE) - numbers.gauss(0.0, NOISE)
        return math.log(seconds(baseline) / seconds(candidate)) + noise

    def measure(baseline: str, candidate: str, launches: int) -> tuple[Effect, str]:
        effect = paired_effect([log_ratio(baseline, candidate, block) for block in range(launches)])
        return effect, f"{baseline}-{candidate}"

    return measure


def bisect(seed: int, seconds: Callable[[str], float], releases: list[str] = RELEASES) -> Bisection:
    return bisect_releases(releases, measured(seed, seconds), threshold=0.02, most=24)


@pytest.mark.parametrize("ratio", [1.2, 0.8], ids=["slower", "faster"])
def test_a_step_between_two_of_six_releases_is_found_in_20_of_20(ratio: float) -> None:
    found, launches = 0, 0
    for seed in SEEDS:
        last_before = seed % 5
        slow = RELEASES[last_before + 1 :]
        result = bisect(seed, lambda release, slow=slow: ratio if release in slow else 1.0)
        found += result.decisive_step is not None and result.between == (RELEASES[last_before], slow[0])
        launches += sum(step.launches for step in result.steps)
    print(f"found {found} of {len(SEEDS)}, with {launches / len(SEEDS):.0f} launches of each release")
    assert found == len(SEEDS)


def test_no_step_is_found_where_there_is_none_in_19_of_20() -> None:
    results = [bisect(seed, lambda release: 1.0) for seed in SEEDS]
    right = sum(result.between is None for result in results)
    print(f"no difference in {right} of {len(SEEDS)}")
    assert right >= 19
    assert all(len(result.steps) == 1 for result in results if result.between is None)


def test_all_looks_together_have_the_level_of_one() -> None:
    for most, counts in ((6, [6]), (8, [6, 8]), (24, [6, 12, 24])):
        looks = planned_looks(most)
        assert [count for count, _ in looks] == counts
        assert math.isclose(sum(level for _, level in looks), ALPHA)


def test_without_noise_two_releases_need_six_launches_and_one_comparison() -> None:
    result = bisect_releases(["a", "b"], lambda *_: (paired_effect([0.3] * LEAST), "x"), threshold=0.02, most=24)
    assert (result.verdict, result.between, len(result.steps)) == ("FASTER", ("a", "b"), 1)
    alike = bisect_releases(["a", "b"], lambda *_: (paired_effect([0.001] * LEAST), "x"), threshold=0.02, most=24)
    assert (alike.verdict, alike.between, alike.reason) == ("EQUIVALENT", None, ALIKE)


def test_a_spent_budget_leaves_the_releases_that_are_certain() -> None:
    asked: list[tuple[str, str]] = []

    def measure(baseline: str, candidate: str, launches: int) -> tuple[Effect, str] | None:
        asked.append((baseline, candidate))
        if len(asked) > 2:
            return None
        return paired_effect([-0.3 if candidate >= "1.20.0" else 0.0] * launches), "x"

    result = bisect_releases(RELEASES, measure, threshold=0.02, most=24)
    assert (result.between, result.decisive_step, result.reason) == (("1.19.0", "1.20.0"), None, NO_TIME)


@pytest.mark.slow
def test_releases_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for version in ("1.18.0", "1.19.0", "1.20.1", "1.22.0"):
        put_into_cache(tmp_path, version)
    assert expand_releases(parse_ucx_releases("1.19.0..1.22.0")) == ["1.19.0", "1.20.1", "1.22.0"]
    assert expand_releases(parse_ucx_releases("1.22.0,/opt/ucx")) == ["1.22.0", "/opt/ucx"]
    with pytest.raises(UsageError, match=r"no release 1\.19\.1"):
        expand_releases(parse_ucx_releases("1.19.1..1.22.0"))
    for wrong in ("1.19.0", "1.19.0,wheel"):
        with pytest.raises(ValueError, match="no list of releases or folders"):
            parse_ucx_releases(wrong)


def test_defaults_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    put_into_cache(tmp_path, "1.19.0", more_settings="UCX_A=1\nUCX_B=2\nUCX_C=3\n")
    newer = put_into_cache(tmp_path, "1.22.0", more_settings="UCX_A=8\nUCX_B=2\nUCX_D=4\n")
    with (newer / "bin/ucx_info").open("a") as program:  # as UCX prints a time that it measures at its start
        program.write('printf "#\\n# syntax:    time value: <number>\\n#\\nUCX_TIME=%sns\\n" $(date +%N)\n')
    (changed, gone, new) = changed_settings("1.19.0", "1.22.0")
    assert (changed.name, changed.baseline, changed.candidate) == ("UCX_A", "1", "8")
    assert (gone.name, gone.candidate, new.name, new.baseline) == ("UCX_C", None, "UCX_D", None)
    (newer / "bin/ucx_info").unlink()
    assert changed_settings("1.19.0", "1.22.0") == []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cache of four small releases, and a command that sleeps longer with the last two."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.chdir(tmp_path)
    for version in ("1.19.0", "1.20.1", "1.21.0", "1.22.0"):
        put_into_cache(tmp_path / "cache", version, more_settings=f"UCX_RNDV_THRESH={version[2:4]}k\n")
    (tmp_path / "program").write_text(
        'case "$LD_LIBRARY_PATH" in */1.2[12].0/*) echo rate 0.5; sleep 0.01 ;; *) echo rate 2 ;; esac\n'
    )
    return tmp_path


COMMAND = ("--metric", r"rate=re:rate (\S+)", "--better", "more", "--", "sh", "program")


@pytest.mark.slow
def test_the_release_that_slows_a_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bisect", "--ucx", "1.19.0..1.22.0", "--json", *COMMAND)
    assert exit_status(*words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["between"] == ["1.20.1", "1.21.0"]
    assert (document["verdict"], document["decisive_step"]["ratio"]) == ("SLOWER", pytest.approx(0.25))
    assert document["settings"] == [{"name": "UCX_RNDV_THRESH", "baseline": "20k", "candidate": "21k"}]
    folders = {step["records"] for step in document["steps"]}
    for folder in folders:
        campaign = read_campaign(Path(folder))
        assert campaign.command is not None
        assert [len(run.launches) for run in campaign.runs] == [6, 6]
        assert exit_status("compare", folder) == 0
        assert exit_status("show", folder) == 0
    capsys.readouterr()

    before = {path: path.stat().st_mtime_ns for path in place.glob("results/*/records.jsonl")}
    assert exit_status(*words) == 0  # nothing is measured again
    assert json.loads(capsys.readouterr().out) == document
    assert {path: path.stat().st_mtime_ns for path in place.glob("results/*/records.jsonl")} == before
    assert exit_status("bisect", "--ucx", "1.19.0..1.22.0", *COMMAND) == 0
    printed = capsys.readouterr().out
    assert "UCX 1.21.0 is worse than 1.20.1: speed-up 0.250" in printed
    assert "UCX_RNDV_THRESH" in printed


@pytest.mark.slow
def test_a_release_with_which_the_command_fails_ends_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = 'case "$LD_LIBRARY_PATH" in */1.22.0/*) exit 1 ;; esac'
    assert exit_status("bisect", "--ucx", "1.19.0,1.22.0", "--", "sh", "-c", failing) == 3
    assert "not all launches of 1.19.0 and 1.22.0 went well" in capsys.readouterr().err
    assert exit_status("bisect", "--ucx", "1.19.0,1.22.0", "--", "sh", "-c", failing) == 3
    assert "6 of 6 launches with UCX 1.22.0 failed" in capsys.readouterr().err


def test_a_dry_run_and_what_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("bisect", "--ucx", "1.19.0..1.22.0", "--dry-run", *COMMAND) == 0
    printed = capsys.readouterr().out
    assert "## releases: 1.19.0, 1.20.1, 1.21.0, 1.22.0\n" in printed
    assert "until they tell: 6, 12, 24\n" in printed
    assert not Path("results").exists()
    for words, message in (
        (("--", "true"), "name the releases"),
        (("--ucx", "1.19.0,1.20.1", "--launches", "5", "--", "true"), "at least 6"),
        (("--ucx", "1.19.0,1.20.1", "--chunk", "1e6", "--", "true"), "--chunk is an option of the merge"),
        (("--ucx", "1.19.0,1.20.1", "--preset", "osu"), "--preset is an option of a command"),
    ):
        assert exit_status("bisect", *words) == 2
        assert message in capsys.readouterr().err
