"""The documents of `check`, `configs`, `doctor` and `transports`; `docs/reference/records.md` describes them."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.analysis.documents.run import Lane
from merge_bench.config.check import Conflict, VariableState
from merge_bench.errors import Caution
from merge_bench.host.doctor import Finding
from merge_bench.host.pinning import Binding
from merge_bench.records.schema import SizeRange


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


class ShippedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that comes with the package, and its first comment line."""

    name: str
    about: str
    path: str


class ConfigsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The shipped configs, and the tuning space."""

    document_version: Literal[1] = 1
    configs: list[ShippedFile]
    space: ShippedFile


class DoctorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What every check found on every host, and the worst state among them.

    `bindings`: of each worker of a running cluster, or of one worker on each GPU of this host.
    """

    document_version: Literal[1] = 1
    worst: str
    findings: list[Finding]
    bindings: list[Binding] = []


class Pair(Lane, frozen=True, kw_only=True):
    """What UCX selected from one worker to another, and how its messages travel by memory and size."""

    protocols: list[SizeRange]


class TransportsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Requested settings, the transports that each host offers (with their devices), and what UCX selected.

    `bindings`: of each worker, by rank.
    """

    document_version: Literal[1] = 1
    requested: dict[str, str]
    available: dict[str, dict[str, list[str]]]
    pairs: list[Pair]
    bindings: list[Binding] = []
    warnings: list[Caution]
