"""The record of RAPIDS' interfaces in tests/data/rapids-api.json: made, read, compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.rapids.installed import Installed
from tests.rapids.kinds import Entry
from tests.rapids.sources import ROOT

FILE = ROOT / "tests/data/rapids-api.json"


class Recorded:
    """Names looked up in the record instead of the packages."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._modules = {
            path[:end]
            for path in [*document["names"], *document["members"]]
            for end in range(len(path))
            if path[end] == "."
        }

    def look(self, path: str) -> Entry | None:
        """A name of a module, or a member of an enumeration; None if the record has none."""
        found = self.document["names"].get(path)
        if found is None:
            return Entry("module") if path in self._modules else None
        return Entry(**found)

    def member(self, cls: str, name: str) -> Entry | None:
        """A method or property of a class."""
        found = self.document["members"].get(cls, {}).get(name)
        return None if found is None else Entry(**found)

    def field(self, library: str, name: str) -> bool:
        """Whether some structure of a library has a field of that name."""
        return name in self.document["fields"].get(library, ())


def made(installed: Installed, packages: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The record of everything that `installed` was asked for."""
    return {
        "packages": dict(sorted(packages.items())),
        "names": {path: _plain(entry) for path, entry in sorted(installed.names.items()) if entry.what != "module"},
        "members": {
            cls: {name: _plain(entry) for name, entry in sorted(found.items())}
            for cls, found in sorted(installed.members.items())
            if found
        },
        "fields": {library: sorted(names) for library, names in sorted(installed.fields.items())},
        "dask cuda worker": dict(sorted(options.items())),
    }


def _plain(entry: Entry) -> dict[str, object]:
    return {name: value for name, value in asdict(entry).items() if value is not None and value != ""}


def read(file: Path = FILE) -> dict[str, Any]:
    """The record; an empty one if there is none yet."""
    if not file.exists():
        return {"packages": {}, "names": {}, "members": {}, "fields": {}, "dask cuda worker": {}}
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def text(document: Mapping[str, Any]) -> str:
    """As JSON with each name on a line of its own."""
    parts = []
    for heading, section in document.items():
        lines = []
        for name, value in section.items():
            if heading == "members":
                inner = [f"      {json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items()]
                lines.append(f"    {json.dumps(name)}: {{\n" + ",\n".join(inner) + "\n    }")
            else:
                lines.append(f"    {json.dumps(name)}: {json.dumps(value)}")
        parts.append(f"  {json.dumps(heading)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """One line for each entry that is new, gone or another."""
    old, new = dict(_flat(before)), dict(_flat(after))
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield f"new: {name} {new[name]}"
        elif name not in new:
            yield f"gone: {name} {old[name]}"
        elif old[name] != new[name]:
            yield f"changed: {name} was {old[name]}, is {new[name]}"


def _flat(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for heading, section in document.items():
        for name, value in section.items():
            if heading == "members":
                for member, entry in value.items():
                    yield f"{name}.{member}", _line(entry)
            else:
                yield (name if heading == "names" else f"{heading} {name}"), _line(value)


def _line(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and "what" in value:
        returns = f" -> {value['returns']}" if "returns" in value else ""
        return f"{value['what']} {value.get('call', '')}{returns}{value.get('value', '')}".strip()
    return json.dumps(value)
