"""The lines of `records.jsonl` and the documents of ``--json``, from the JSON Schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tools.reference import page, table
from tools.reference.schemas import FILES, schemas

_INTRO = """\
Times are SI **seconds**, sizes **bytes**, rates **bytes per second**. **null** means *not measured* or *does not
apply*; 0 means that it was measured and is zero. A field with a default may be missing. A worker is identified by its
`rank`, 0..W-1, the same in all lines of a launch. Readers should ignore fields and kinds that they do not know: new
ones do not raise `schema` or `document_version`. [results.md](../results.md#the-records) says how records are kept
and aggregated.

The same as JSON Schemas: [records.json](../schema/records.json) for a line of `records.jsonl`, and one for each
document in [docs/schema](../schema/), which all refer to [definitions.json](../schema/definitions.json)."""


def text() -> str:
    """The page: the lines by kind, the documents, then the structures that they contain."""
    files = {name: json.loads(found) for name, found in schemas().items()}
    structures: dict[str, Any] = files.pop("definitions")["$defs"]
    named: list[str] = []
    parts = [_INTRO, "## Lines of records.jsonl"]
    lines = _referred(files.pop("records"))
    rows = []
    for name in lines:
        kind = structures[name]["properties"]["kind"]["enum"][0]
        rows.append([f"[`{kind}`](#{name.lower()})", _first_sentence(structures[name])])
    parts += [table(["kind", "holds"], rows), "## Documents"]
    rows = []
    for name, schema in files.items():
        roots = _referred(schema)
        named += roots
        links = ", ".join(f"[{root}](#{root.lower()})" for root in roots)
        rows.append([f"`{FILES[name].title}`", links, f"[{name}.json](../schema/{name}.json)"])
    parts += [table(["command", "document", "schema"], rows), "## Structures"]
    first = list(dict.fromkeys((*lines, *named)))
    for name in (*first, *sorted(set(structures) - set(first))):
        parts += _described(name, structures[name])
    return page("Records and JSON documents", *parts)


def _referred(schema: Any) -> list[str]:
    """The structures that a file's schema refers to, in its order."""
    return list(dict.fromkeys(re.findall(r'"definitions\.json#/\$defs/(\w+)"', json.dumps(schema))))


def _first_sentence(structure: Any) -> str:
    return str(structure["description"]).partition("\n")[0].replace("``", "`")


def _described(name: str, structure: Any) -> Iterator[str]:
    yield f"### {name}"
    yield str(structure.get("description", "")).replace("``", "`")
    required = set(structure.get("required", ()))
    hidden = {"schema", "time"} if "kind" in structure["properties"] and name != "CampaignLine" else set()
    rows = []
    for field, schema in structure["properties"].items():
        if field in hidden:
            continue
        default = schema.get("default")
        missing = "" if field in required else f" Default: `{json.dumps(default)}`." if default is not None else ""
        rows.append([f"`{field}`", _type(schema), schema.get("description", "") + missing])
    yield table(["field", "type", "holds"], rows)


def _type(schema: Any) -> str:
    """A schema in words: ``list of [Pair](#pair)``, ``number or null``."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in schema["enum"])
    kinds = schema.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(_kind(kind, schema) for kind in kinds)


def _kind(kind: str, schema: Any) -> str:
    if kind == "array" and isinstance(items := schema.get("items"), dict):
        return f"list of {_type(items)}"
    if kind == "array" and (each := schema.get("prefixItems")):
        return f"[{', '.join(map(_type, each))}]"
    if kind == "array":
        return "list"
    if kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"name → {_type(values)}"
    return kind
