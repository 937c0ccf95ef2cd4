"""`benchmarks.command_false_alarms`: the noise of its script, what it counts, and that it finds what is there."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.command_false_alarms import KINDS, SCRIPT, false_alarms, is_met, rows, table


def printed(kind: str, launch: int, state: Path, *, gain: float = 1.0) -> float:
    """Seconds that a launch of the script prints."""
    words = [str(SCRIPT), kind, "7", str(launch), str(state)]
    environment = {"PATH": "/usr/bin:/bin", "NOISE_GAIN": f"{gain:g}"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    name, seconds, unit = done.stdout.split()
    assert (name, unit, done.stderr) == ("time:", "s", "")
    return float(seconds)


@pytest.mark.parametrize(("kind", "least", "most"), [("normal", 0.0088, 0.0114), ("heavy-tails", 0.001, 0.1)])
def test_a_launch_has_noise_of_its_own_which_is_the_same_every_time(
    tmp_path: Path, kind: str, least: float, most: float
) -> None:
    seconds = [printed(kind, launch, tmp_path / "state") for launch in range(12)]
    assert len(set(seconds)) == 12
    assert least < min(seconds) < 0.01 < max(seconds) < most
    assert printed(kind, 3, tmp_path / "state") == seconds[3]
    assert printed(kind, 3, tmp_path / "state", gain=2.0) == pytest.approx(seconds[3] / 2, abs=2e-6)


def test_a_state_lasts_for_several_launches(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("0\n")
    states = []
    for launch in range(24):
        seconds = printed("two-states", launch, state)
        states.append(int(state.read_text()))
        assert seconds == pytest.approx(0.0125 if states[-1] else 0.01, rel=0.03)
    changes = sum(old != new for old, new in itertools.pairwise(states))
    assert 3 <= changes <= 12


def test_verdicts_are_counted_by_noise_and_metric() -> None:
    quiet = Counter({"INCONCLUSIVE": 15, "EQUIVALENT": 4, "SLOWER": 1})
    found = rows({"normal": {"time": quiet, "wall": quiet + Counter({"FASTER": 1, "INCONCLUSIVE": 1})}})
    assert [(row["metric"], row["campaigns"], row["different"]) for row in found] == [
        ("time", 20, 0.05),
        ("wall", 22, 2 / 22),
    ]
    assert is_met(found[:1])
    assert not is_met(found)
    assert "| normal | time | 20 | 0 | 1 | 4 | 15 | 5.0 |" in table(found)
    assert not is_met(rows({"normal": {"time": Counter()}}))  # nothing was measured


@pytest.mark.soak
@pytest.mark.parametrize(("gain", "campaigns"), [(2.0, 3), (1.0, 10)])
def test_of_real_processes_a_difference_is_found_where_there_is_one(
    tmp_path: Path, gain: float, campaigns: int
) -> None:
    output = tmp_path / "found.json"
    done = CliRunner().invoke(
        false_alarms, ["--campaigns", str(campaigns), "--gain", str(gain), "--output", str(output)]
    )
    assert done.exit_code in ((0, 1) if gain == 1.0 else (0,)), done.output
    document = json.loads(output.read_text())
    found = [row for row in document["rows"] if row["metric"] == "time"]
    assert [(row["noise"], row["campaigns"]) for row in found] == [(kind, campaigns) for kind in KINDS]
    different = sum(row["FASTER"] + row["SLOWER"] for row in found)
    if gain == 1.0:
        assert different <= 5  # of 30, 1.5 are allowed on average
    else:
        assert [row["FASTER"] for row in found] == [campaigns] * 3
