"""How long a whole tuning takes, from the records of the real command."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from merge_bench.analysis.statistics import median
from merge_bench.config.shipped import SPACE
from merge_bench.records.reader import read_campaign
from merge_bench.report.next_step import next_step_after_recorded_tuning
from merge_bench.tune.space import read_space
from merge_bench.tune.tuning_plan import LAUNCH_MARGIN, time_to_decide_all

RECORDED = Path(__file__).parents[1] / "data" / "campaigns" / "tune" / "records.jsonl"


def recorded(folder: Path, **changed: object) -> Path:
    """The recorded tuning, with other options in its plan, and an estimate above 1 of its undecided candidate."""
    first, _, rest = RECORDED.read_bytes().partition(b"\n")
    head = msgspec.json.decode(first)
    head["plans"][0]["tune"] |= changed
    (folder / "records.jsonl").write_bytes(
        msgspec.json.encode(head) + b"\n" + rest.replace(b'"ratio":0.407', b'"ratio":1.007')
    )
    return folder


def test_every_candidate_has_all_its_blocks_and_one_is_confirmed(tmp_path: Path) -> None:
    campaign = read_campaign(recorded(tmp_path, space=read_space(SPACE).sha256))
    ends = [each.end.seconds for each in campaign.launches if each.end and each.run_key == ("default", 0)]
    launches = 3 * (4 + 2) + 2 * 6  # blocks of four candidates, the baseline and its twin; then the confirmation
    assert time_to_decide_all(campaign) == pytest.approx(
        launches * LAUNCH_MARGIN * median([each for each in ends if each is not None])
    )


def test_with_another_space_it_is_not_known_and_the_budget_is_doubled(tmp_path: Path) -> None:
    campaign = read_campaign(recorded(tmp_path, space="another", budget=[None, 180.0]))
    assert time_to_decide_all(campaign) is None
    assert next_step_after_recorded_tuning(campaign).command.endswith("--budget 6m")
