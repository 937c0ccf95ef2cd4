"""JSON Schemas of the records' lines and of every document that ``--json`` prints, made from their structures.

docs/schema/fields.toml describes the fields. `python -m tools.reference` writes the schemas into docs/schema, and
`test_schemas` fails when they are stale.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from merge_bench.analysis.documents import (
    CheckDocument,
    CompareDocument,
    ConfigsDocument,
    DoctorDocument,
    RunDocument,
    SweepDocument,
    TransportsDocument,
)
from merge_bench.command.bisect import BisectDocument
from merge_bench.forecast.document import PredictDocument
from merge_bench.probe.view import ProbeDocument, ReferencesDocument
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import Record
from merge_bench.records.timeline import TimelineHeader, TimelineIteration, TimelineRound
from merge_bench.regressions.document import HistoryDocument
from merge_bench.service.documents import Job, Jobs
from merge_bench.tune.result import TuneDocument
from tools.reference import DOCS

FOLDER = DOCS / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
WIDTH = 120


@dataclass(frozen=True)
class Described:
    """One file of schemas: what it is of, and the structures, any of which may be there."""

    title: str
    kinds: Sequence[Any]


FILES: Mapping[str, Described] = {
    "records": Described("A line of records.jsonl", (Record,)),
    "timeline": Described("a line of timeline-N.jsonl", (TimelineHeader, TimelineIteration, TimelineRound)),
    "run": Described("run --json, exec --json, import --json", (RunDocument, SweepDocument)),
    "compare": Described("compare --json", (CompareDocument,)),
    "history": Described("history --json", (HistoryDocument,)),
    "predict": Described("predict --json", (PredictDocument,)),
    "tune": Described("tune --json", (TuneDocument,)),
    "bisect": Described("bisect --json", (BisectDocument,)),
    "probe": Described("probe … --json", (ProbeDocument, ReferencesDocument)),
    "transports": Described("transports --json", (TransportsDocument,)),
    "doctor": Described("doctor --json", (DoctorDocument,)),
    "check": Described("check --json", (CheckDocument,)),
    "configs": Described("configs --json", (ConfigsDocument,)),
    "jobs": Described("jobs … --json", (Jobs, Job)),
}


def schemas() -> dict[str, str]:
    """The text of each file, by name. What the structures are made of stands once, in ``definitions``."""
    kinds = [kind for described in FILES.values() for kind in described.kinds]
    # A plan stands in others as plain data, so that its schema has to be asked for.
    found, definitions = msgspec.json.schema_components([*kinds, RecordedPlan], ref_template="#/$defs/{name}")
    roots = iter(found)
    _describe(definitions)
    files = {
        "definitions": {"$schema": DIALECT, "$defs": {name: _short(definitions[name]) for name in sorted(definitions)}}
    }
    for name, described in FILES.items():
        (root, *more) = [_outside(next(roots)) for _ in described.kinds]
        either = {"anyOf": [root, *more]} if more else root
        files[name] = {"$schema": DIALECT, "title": described.title, **either}
    return {name: _text(file) + "\n" for name, file in files.items()}


def _describe(definitions: dict[str, Any]) -> None:
    """Add what `fields.toml` says to the fields."""
    for structure, fields in tomllib.loads((FOLDER / "fields.toml").read_text(encoding="utf-8")).items():
        for field, text in fields.items():
            definitions[structure]["properties"][field]["description"] = text


def _outside(part: Any) -> Any:
    """The same for another file than ``definitions``."""
    return json.loads(json.dumps(part).replace('"#/$defs/', '"definitions.json#/$defs/'))


def _short(part: Any) -> Any:
    """Without titles, which repeat names, and without the indentation of docstrings; a type or null is one type."""
    if isinstance(part, list):
        return [_short(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: _short(value) for name, value in part.items() if not (name == "title" and isinstance(value, str))}
    if isinstance(found.get("description"), str):
        found["description"] = inspect.cleandoc(found["description"])
    match found:
        case {"anyOf": [{"type": str(kind), **others}, {"type": "null"}], **rest} if "enum" not in others:
            return {"type": [kind, "null"], **others, **rest}
    return found


def _text(part: Any, indent: str = "") -> str:
    """As JSON: on one line what fits on one."""
    line = json.dumps(part, ensure_ascii=False)
    if len(indent + line) <= WIDTH or not isinstance(part, dict | list):
        return line
    inner = indent + " "
    if isinstance(part, list):
        return "[\n" + ",\n".join(inner + _text(each, inner) for each in part) + f"\n{indent}]"
    lines = (f"{inner}{json.dumps(name)}: {_text(value, inner)}" for name, value in part.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def write() -> None:
    """Write the files, and print their names."""
    for name, text in schemas().items():
        (FOLDER / f"{name}.json").write_text(text)
        print(FOLDER / f"{name}.json")
