"""Gates after nights that are made up: `history_gates` counts right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import history_gates as gates
from merge_bench.analysis.compare import METRICS, side_of_run
from merge_bench.records.reader import read_campaign


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gates.make_template(tmp_path_factory.mktemp("template"))


def test_a_result_has_the_times_that_were_made_up(tmp_path: Path, template: Path) -> None:
    results = gates.MadeUpResults(tmp_path, template)
    logs = np.linspace(-0.1, 0.1, gates.LAUNCHES)
    (run,) = read_campaign(results.add(logs)).runs
    throughputs = side_of_run(run, METRICS[0]).values
    assert np.log(throughputs[0] / np.array(throughputs)) == pytest.approx(logs - logs[0])


def test_a_loss_is_slower_after_an_episode_and_while_it_stays(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gates, "GOOD", (0, 3))
    monkeypatch.setattr(gates, "STAYS", 2)
    random = np.random.default_rng(1)
    episode = dict(gates.after_an_episode(gates.MadeUpResults(tmp_path / "ended", template), random, 0.1))
    assert {case for case, verdict in episode.items() if verdict == "SLOWER"} == {
        case for case in episode if "unchanged" not in case
    }
    stays = dict(gates.while_a_loss_stays(gates.MadeUpResults(tmp_path / "stays", template), random, 0.1))
    assert stays == {"night 1": "SLOWER", "night 2": "SLOWER"}
