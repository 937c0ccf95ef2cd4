"""The OpenAPI document, made from the routes and the structures that validate requests."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from merge_bench.service.documents import Refusal

if TYPE_CHECKING:
    from merge_bench.service.api import Route

_REFERENCE = "#/components/schemas/{name}"
_IN_PATHS: dict[str, dict[str, Any]] = {
    "id": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, "name": {"type": "string", "maxLength": 60},
}  # fmt: skip


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The document of these routes."""
    types = [each for route in routes for each in (route.takes, route.gives) if each is not None]
    _, schemas = msgspec.json.schema_components([*types, Refusal], ref_template=_REFERENCE)
    for schema in schemas.values():
        schema["description"] = inspect.cleandoc(schema["description"])
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "merge_bench", "version": version},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    described = inspect.getdoc(route.answer)
    given = _content(route.gives.__name__) if route.gives else {route.content: {}}
    found: dict[str, Any] = {
        "operationId": route.answer.__name__,
        "summary": described,
        "security": [{"token": []}] if route.role else [],
        "responses": {
            str(route.status): {"description": described, "content": given},
            "default": {"description": "The request was refused.", "content": _content(Refusal.__name__)},
        },
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in _IN_PATHS.items() if f"{{{name}}}" in route.path
    ]  # fmt: skip
    if route.takes is not None and route.method == "POST":
        found["requestBody"] = {"required": True, "content": _content(route.takes.__name__)}
    elif route.takes is not None:
        fields = schemas[route.takes.__name__]["properties"].items()
        parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in fields]
    return {**found, "parameters": parameters}


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(name=name)}}}
