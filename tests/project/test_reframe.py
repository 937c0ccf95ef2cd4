"""The test for ReFrame, which is not installed here: what it calls and reads exists."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

import pytest

from merge_bench.cli import cli
from tests.project.scripts import ROOT
from tests.project.test_recorded_campaigns import DATA

TREE = ast.parse((ROOT / "cluster/reframe/merge_bench_test.py").read_text())
SCHEMAS = json.loads((ROOT / "docs/schema/definitions.json").read_text())["$defs"]
GIB = 2**30


def keys(node: ast.expr) -> list[str] | None:
    """`["a", "b"]` of `document["a"]["b"]`."""
    if isinstance(node, ast.Name):
        return [] if node.id == "document" else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        before = keys(node.value)
        return None if before is None else [*before, node.slice.value]
    return None


def read_fields() -> set[tuple[str, ...]]:
    found = (keys(node) for node in ast.walk(TREE) if isinstance(node, ast.Subscript))
    return {tuple(each) for each in found if each}


def resolve(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The structures that a schema allows."""
    for each in schema.get("anyOf", [schema]):
        yield SCHEMAS[each["$ref"].rpartition("/")[2]] if "$ref" in each else each


def test_the_fields_that_it_reads_are_in_the_document() -> None:
    fields = read_fields()
    assert {"verified", "error", "throughput_bytes_per_second", "bandwidth_bytes_per_second"} <= {
        first for first, *_ in fields
    }
    for path in fields:
        schemas = [SCHEMAS["RunDocument"]]
        for key in path:
            below = [schema["properties"][key] for schema in schemas if key in schema.get("properties", {})]
            assert below, f"{path} is not in docs/schema/run.json"
            schemas = [each for schema in below for each in resolve(schema)]


def test_its_options_are_those_of_run() -> None:
    (command,) = (node for node in ast.walk(TREE) if isinstance(node, ast.FunctionDef) and node.name == "make_command")
    texts = [node.value for node in ast.walk(command) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    options = {text.split()[0] for text in texts if text.startswith("--")}
    assert "--json" in options
    assert options <= {name for parameter in cli.commands["run"].params for name in parameter.opts}
    assert "run" in texts


@pytest.mark.parametrize("name", ["throughput", "bandwidth_per_worker"])
def test_its_figures_are_those_of_a_recorded_run(name: str) -> None:
    (function,) = (node for node in ast.walk(TREE) if isinstance(node, ast.FunctionDef) and node.name == name)
    (unit,) = (each.value for call in function.decorator_list if isinstance(call, ast.Call) for each in call.args)
    result = function.body[-1]
    assert isinstance(result, ast.Return)
    assert result.value is not None
    document = json.loads((DATA / "run" / "document.json").read_text())
    value = eval(compile(ast.Expression(result.value), name, "eval"), {"document": document, "GIB": GIB})
    bytes_per_second = {
        "throughput": document["throughput_bytes_per_second"]["median"],
        "bandwidth_per_worker": document["bandwidth_bytes_per_second"]["harmonic_mean"],
    }[name]
    assert (unit, value * 2**30) == ("GiB/s", pytest.approx(bytes_per_second))
