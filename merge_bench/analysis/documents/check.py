"""The document of ``check --json``; `docs/reference/records.md` describes it."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.config.check import VariableState
from merge_bench.config.conflicts import Conflict


class CheckedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The config's file."""

    name: str
    path: str
    sha256: str


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How UCX reads a config, and what stops `run`.

    `ucx`: the release that was asked, null if none is installed; `errors`: why `ok` is false, a sentence each.
    """

    document_version: Literal[1] = 1
    ok: bool
    config: CheckedConfig
    ucx: str | None
    variables: list[VariableState]
    conflicts: list[Conflict]
    errors: list[str]
    warnings: list[str]
