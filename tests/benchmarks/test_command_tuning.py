"""`benchmarks.command_tuning`: its space, and what it takes from a tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.command_tuning import PLANTED, SPACE, is_expected, summarize, table
from merge_bench.tune.space import read_tuning_space


def document(*settings: str) -> dict[str, Any]:
    """What ``tune --json`` prints if these settings were found, none if nothing was."""
    config = "+".join(settings)
    line = {"config": "other", "ratio": 0.9, "low": 0.8, "high": 1.1, "decision": "rejected"}
    found = {"config": config, "ratio": 4.0, "low": 3.0, "high": 5.0, "decision": "accepted"}
    winner = {"config": config, "settings": list(settings), "contributions": {}} if settings else None
    return {"winner": winner, "singles": [line] * 17, "confirmed": [line, found][: 1 + bool(settings)], "stopped": None}


def test_the_space_has_17_values_two_of_which_are_planted(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(SPACE)
    values = [value.value_id.partition("=")[0] for value in read_tuning_space(file).values]
    assert len(values) == 17
    assert values.count(PLANTED) == 2


def test_the_planted_setting_is_expected_and_nothing_without_one() -> None:
    found, other, none = (
        summarize(document(*settings)) for settings in ((f"{PLANTED}=large", "mutex=y"), ("mutex=y",), ())
    )
    assert (found["settings"], found["winner"], found["ratio"]) == (17, [f"{PLANTED}=large", "mutex=y"], 4.0)
    assert (none["winner"], none["ratio"]) == ([], None)
    assert [is_expected("planted", each) for each in (found, other, none)] == [True, False, False]
    assert [is_expected("ignored", each) for each in (found, other, none)] == [False, False, True]
    measured = {"launches": 83, "seconds": 150.0}
    lines = table({"planted": {**measured, **found}, "ignored": {**measured, **none}}).splitlines()
    assert lines[2] == f"| planted | 17 | 83 | {PLANTED}=large mutex=y | 4.000 | 3.000 to 5.000 | 2.5 | yes |"
    assert lines[3] == "| ignored | 17 | 83 | nothing |  |  | 2.5 | yes |"
