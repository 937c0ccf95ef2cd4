"""The lanes that UCX selected, from its log under ``UCX_LOG_LEVEL=info``.

UCX ≥ 1.15 writes a line for each configuration of an endpoint and each place of its peer::

    … UCX  INFO    ucp_context_0 intra-node cfg#1 tag(sysv/memory cma/memory)

Several lines for one place are steps of connecting: the last one counts. UCX ≤ 1.14 writes ``ep_cfg[1]: tag(…)``
without the place.
"""

from __future__ import annotations

import re

SELF, UNKNOWN = "self", "unknown"
_NEW = re.compile(
    r"\b(self|intra-node|inter-node) cfg#\d+\s+(\w+\(.*)$", re.MULTILINE
)  # not the titles of UCX_PROTO_INFO's tables
_OLD = re.compile(r"\bep_cfg\[\d+\]:\s*(\S.*)$", re.MULTILINE)
_LANES = re.compile(r"\b\w+\(([^)]*)\)")
_VERSION = re.compile(r"UCX\s+INFO\s+Version (\S+) \(loaded")


def lanes(text: str) -> dict[str, tuple[str, ...]]:
    """The lanes of the last configuration for each place, as ``tcp/eth0``, in UCX's order; {} if none was logged."""
    by_place = {place: _parse_lanes(rest) for place, rest in _NEW.findall(text)}
    if not by_place:
        for rest in _OLD.findall(text):
            selected = _parse_lanes(rest)
            if not all(lane.startswith("self/") for lane in selected):
                by_place[UNKNOWN] = selected
    return by_place


def lanes_to_others(text: str) -> tuple[str, ...]:
    """The lanes to all other processes, on this host and on others, each once."""
    others = (lane for place, selected in lanes(text).items() if place != SELF for lane in selected)
    return tuple(dict.fromkeys(others))


def logged_version(text: str) -> str | None:
    match = _VERSION.search(text)
    return match[1] if match else None


def _parse_lanes(rest: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lane for words in _LANES.findall(rest) for lane in words.split()))
