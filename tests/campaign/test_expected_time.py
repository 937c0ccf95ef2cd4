"""How long launches will take, from earlier results and by the rule of thumb."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import LaunchTimeEstimator, PlannedLaunch, earlier_launch_seconds
from merge_bench.campaign.run_campaign import run_launches
from merge_bench.records import schema as s
from merge_bench.records.writer import CampaignWriter
from tests.helpers.interruptions import WELL, sweep
from tests.helpers.synthetic_campaigns import Script, plan, write_launch

NOTHING = cast("PlannedRun", None)


def earlier(
    folder: Path,
    seconds: float,
    walls: tuple[float, ...],
    *,
    host: str | None = None,
    rows: int = 1_000_000,
    config: str = "default",
    busy: bool = False,
) -> None:
    """A finished campaign of one launch that took `seconds`, with these iterations."""
    its = plan(rows_per_chunk=rows)
    with CampaignWriter.create(folder, config) as writer:
        key = s.RunKey(config=config, plan=0)
        writer.write(
            s.CampaignLine(
                campaign_id=writer.campaign_id,
                argv=[],
                version="0",
                configs=[s.Config(name=config)],
                seed=0,
                plans=[its],
                runs=[key],
                surroundings={"host": host or socket.gethostname()},
            )
        )
        if busy:
            writer.write(s.WarningLine(code="busy-host", message="other processes keep 2 of 2 cores busy"))
        write_launch(writer, Script(config=config, plan=its, walls=walls, seconds=seconds))


def wanted(**changes: Any) -> Mapping[str, Any]:
    return plan(**changes)


def test_an_earlier_launch_is_scaled_to_the_iterations(tmp_path: Path) -> None:
    earlier(tmp_path, 6.0, (0.5, 0.5))
    assert earlier_launch_seconds(tmp_path, wanted(iterations=10), "default") == [pytest.approx(5.0 + 10 * 0.5)]


def test_other_hosts_and_other_problems_do_not_count(tmp_path: Path) -> None:
    earlier(tmp_path, 6.0, (0.5,), host="elsewhere")
    earlier(tmp_path, 60.0, (0.5,), rows=25_000_000)
    assert earlier_launch_seconds(tmp_path, wanted(iterations=1), "default") == []


def test_a_plan_of_a_time_with_one_kind_of_join_is_the_same_problem(tmp_path: Path) -> None:
    earlier(tmp_path, 6.0, (0.5,))
    assert earlier_launch_seconds(tmp_path, {**wanted(iterations=1), "how": "inner"}, "default") == [pytest.approx(6.0)]
    assert earlier_launch_seconds(tmp_path, {**wanted(iterations=1), "how": "left"}, "default") == []


def test_the_same_config_comes_first(tmp_path: Path) -> None:
    earlier(tmp_path, 9.0, (0.001,), config="tcp")
    assert earlier_launch_seconds(tmp_path, wanted(iterations=0), "default") == [pytest.approx(9.0, abs=0.01)]
    earlier(tmp_path, 6.0, (0.001,))
    assert earlier_launch_seconds(tmp_path, wanted(iterations=0), "default") == [pytest.approx(6.0, abs=0.01)]


def test_launches_on_a_busy_host_count_only_as_long_as_there_are_no_others(tmp_path: Path) -> None:
    earlier(tmp_path, 49.0, (0.5,), busy=True)
    assert earlier_launch_seconds(tmp_path, wanted(iterations=1), "default") == [pytest.approx(49.0)]
    earlier(tmp_path, 6.0, (0.5,))
    assert earlier_launch_seconds(tmp_path, wanted(iterations=1), "default") == [pytest.approx(6.0)]


def test_of_two_earlier_launches_the_shorter_counts_because_the_first_of_all_compiles(tmp_path: Path) -> None:
    def usual() -> float | None:
        return LaunchTimeEstimator(tmp_path, [plan(iterations=1)], lambda job: 1.0).launch_seconds(jobs()[0])

    earlier(tmp_path, 20.0, (0.5,))
    earlier(tmp_path, 6.0, (0.5,))
    assert usual() == pytest.approx(6.0)
    earlier(tmp_path, 8.0, (0.5,))
    assert usual() == pytest.approx(8.0)


def jobs() -> list[PlannedLaunch]:
    return [PlannedLaunch(NOTHING, config, 0, block) for block in range(2) for config in ("default", "tcp")]


def expected(tmp_path: Path, seconds: float | None) -> LaunchTimeEstimator:
    return LaunchTimeEstimator(tmp_path, [plan()], lambda job: seconds)


def test_without_earlier_results_the_rule_counts_and_is_stated(tmp_path: Path) -> None:
    found = expected(tmp_path, 30.0)
    assert found.describe_estimate(jobs()).startswith("4 launches take about 2 minutes (by a rule of thumb: ")


def test_the_first_launch_corrects_what_was_expected_of_all(tmp_path: Path) -> None:
    found, (first, *rest) = expected(tmp_path, 10.0), jobs()
    assert found.total_seconds(rest) == pytest.approx(30.0)
    found.add_measured_launch(first, 15.0)
    assert found.total_seconds(rest) == pytest.approx(45.0)
    found.add_measured_launch(rest[0], 40.0)
    assert found.launch_seconds(rest[2]) == pytest.approx(40.0)  # its own config's, no longer the other's


def test_what_is_not_known_is_said_and_learnt_from_the_first_launch(tmp_path: Path) -> None:
    found, (first, *rest) = expected(tmp_path, None), jobs()
    assert found.total_seconds(rest) is None
    assert found.describe_estimate(rest).endswith("the same tables, engine and workers as tcp, default")
    found.add_measured_launch(first, 15.0)
    assert found.total_seconds(rest) == pytest.approx(45.0)


def test_a_campaign_says_how_long_it_takes_and_corrects_it_after_the_first_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sweep(blocks=2)
    time = LaunchTimeEstimator(tmp_path, made.plans, lambda job: 600.0)
    run_launches(tmp_path, "x", made.campaign_line(), made.ordered_launches(), WELL, time_estimator=time)
    before, after = capsys.readouterr().err.splitlines()
    assert before.startswith(f"merge_bench: {len(made.ordered_launches())} launches take about 40 minutes (")
    assert after == "merge_bench: about 1 second left, as the first launch took"
