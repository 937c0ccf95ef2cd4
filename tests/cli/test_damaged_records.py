"""Records damaged at random end no command with a traceback: they are refused in a sentence, or shown."""

from __future__ import annotations

import functools
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.cli.damaged import COMMANDS, words_of
from tests.helpers.mutations import CAMPAIGNS, mutated

QUICK = {"dashboard": 10, "report": 2, "run": 20}
"""Examples of what takes longest; of others forty."""


@functools.cache
def _whole(command: str) -> list[str]:
    """The campaigns that the command shows."""
    found = []
    for name in sorted(each.parent.name for each in CAMPAIGNS.glob("*/records.jsonl")):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "results" / "20260101T000000Z-x-abcdef"
            shutil.copytree(CAMPAIGNS / name, place)
            if words_of(command)(place, CAMPAIGNS / name) == 0:
                found.append(name)
    return found or ["run"]


def _try(command: str, number: int, names: list[str]) -> None:
    chance = random.Random(f"{command} {number}")
    name = chance.choice(names)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "results" / "20260101T000000Z-x-abcdef"
        shutil.copytree(CAMPAIGNS / name, place)
        (place / "records.jsonl").write_bytes(mutated(name, chance))
        assert words_of(command)(place, CAMPAIGNS / name) in (0, 2, 3), (name, number)


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS, "dashboard", "run"])
def test_some_damaged_records(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(QUICK.get(command, 40)):
        _try(command, number, ["gpu", "run", "sweep", "tune", "p2p", "failed"])


@pytest.mark.soak
@pytest.mark.parametrize("command", [*COMMANDS, "dashboard", "run"])
def test_many_damaged_records(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names = _whole(command)
    for number in range(2400):
        _try(command, number, names)


def test_ranks_and_numbers_that_cannot_be_are_refused_by_the_reader(tmp_path: Path) -> None:
    """Both ended a command with a traceback before: `results` with the number, `predict` with the rank."""
    records = (CAMPAIGNS / "run" / "records.jsonl").read_text()
    for before, after in (('"from":0', '"from":77'), ('"wall_seconds":', '"wall_seconds":1e300,"was":')):
        assert before in records
        folder = tmp_path / str(len(after))
        folder.mkdir()
        (folder / "records.jsonl").write_text(records.replace(before, after))
        assert words_of("predict")(folder, CAMPAIGNS / "run") == 2
        assert words_of("results")(folder, CAMPAIGNS / "run") == 0
