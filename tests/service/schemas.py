"""Values for the schemas of the OpenAPI document: right ones, and ones that are nearly right."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

HOSTILE = st.sampled_from(
    [
        "../../etc/passwd",
        "/etc/passwd",
        "$(touch /tmp/owned)",
        "`id`",
        "; reboot",
        "--results=/tmp/owned",
        "\0",
        "' OR 1=1 --",
        "<script>alert(1)</script>",
        "%00",
        "\u202e",
        "{{7*7}}",
        "1e309",
        "NaN",
        "-1",
        "9" * 400,
        "\ud800",
        "\n",
        "run",
        "tune",
        "probe p2p",
        "tcp.cfg",
        "UCX_TLS",
        "chunk",
        "left",
        "hosts",
        "on",
        "02:30",
        "mon-fri",
        "Europe/Berlin",
        "Europe",
        "..",
    ]
)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | HOSTILE | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(HOSTILE | st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)


def values(schema: dict[str, Any], document: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of that schema; one in some is of no schema at all."""
    return st.one_of(*[_fitting(schema, document)] * 4, ANYTHING)


def _fitting(schema: dict[str, Any], document: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return values(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    if "anyOf" in schema:
        return st.one_of([values(each, document) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | HOSTILE
    match schema["type"]:
        case "string":
            return HOSTILE | st.text(max_size=min(schema.get("maxLength", 40) + 1, 40))
        case "integer" | "number":
            low, high = schema.get("minimum", -10), schema.get("maximum", 10**6)
            return st.integers(low - 1, high + 1) | NUMBERS
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(values(schema["items"], document), max_size=4)
    if "properties" not in schema:
        return st.dictionaries(
            HOSTILE | st.text(max_size=12), values(schema["additionalProperties"], document), max_size=4
        )
    known = {name: values(each, document) for name, each in schema["properties"].items()}
    needed = {name: known.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(needed, optional=known | {"extra": ANYTHING})
