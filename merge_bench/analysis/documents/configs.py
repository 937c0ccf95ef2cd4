"""The document of ``configs --json``."""

from __future__ import annotations

from typing import Literal

import msgspec


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
