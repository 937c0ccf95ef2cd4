"""Whoever reads `docs/schema` reads what the program prints today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from merge_bench.analysis.documents import CompareDocument, RunDocument, SweepDocument
from merge_bench.cli import cli
from merge_bench.forecast.document import PredictDocument
from merge_bench.probe.view import ProbeDocument
from tests.helpers.strict_records import unknown_fields
from tests.project.test_recorded_campaigns import DATA, KINDS, PROBES
from tools.reference.schemas import FILES, FOLDER, schemas

OF_COMMANDS = {
    "run": "run",
    "import": "run",
    "show": "run",
    "compare": "compare",
    "history": "history",
    "predict": "predict",
    "tune": "tune",
    "transports": "transports",
    "doctor": "doctor",
    "check": "check",
    "configs": "configs",
    "probe p2p": "probe",
    "probe rma": "probe",
    "probe mpi": "probe",
    "probe reduce-scatter": "probe",
    "probe show": "probe",
    "probe all-to-all": "probe",
    "exec": "run",
    "bisect": "bisect",
    "jobs list": "jobs",
    "jobs show": "jobs",
    "jobs cancel": "jobs",
}


def test_the_schemas_are_those_of_the_structures() -> None:
    there = {path.stem: path.read_text() for path in FOLDER.glob("*.json")}
    assert there == schemas(), "run python -m tools.reference"


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


def test_every_command_with_json_has_one() -> None:
    asked = {name for name, command in commands(cli) if any("--json" in param.opts for param in command.params)}
    assert asked == set(OF_COMMANDS)
    assert set(OF_COMMANDS.values()) | {"records", "timeline"} == set(FILES)


def recorded() -> Iterator[Any]:
    for kind in KINDS:
        folder = Path(kind, "document.json")
        found = SweepDocument if "runs" in json.loads((DATA / folder).read_text()) else RunDocument
        yield pytest.param(folder, found, id=str(folder))
    yield pytest.param(Path("sweep", "comparison.json"), CompareDocument, id="comparison")
    yield pytest.param(Path("run", "forecast.json"), PredictDocument, id="forecast")
    for kind in PROBES:
        yield pytest.param(Path(kind, "rows.json"), ProbeDocument, id=f"{kind}/rows.json")


@pytest.mark.parametrize(("file", "structure"), list(recorded()))
def test_recorded_documents_are_of_these_structures(file: Path, structure: type[msgspec.Struct]) -> None:
    text = (DATA / file).read_text()
    found = msgspec.json.decode(text, type=structure)
    assert unknown_fields(json.loads(text), found) == []
