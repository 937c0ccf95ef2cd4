"""Machines made of files that a test writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from merge_bench.host.doctor import HostCheckFacts, WorkerUcx

Make = Callable[..., HostCheckFacts]


@pytest.fixture
def machine(tmp_path: Path) -> Make:
    """`machine({"proc/…": "text"}, cores=4)`: a machine with these files and attributes, sound in all others."""

    def make(files: Mapping[str, str] | None = None, **attributes: Any) -> HostCheckFacts:
        for path, text in (files or {}).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text + "\n")
        sound: dict[str, Any] = {
            "cores": 8,
            "available_bytes": 60 << 30,
            "total_bytes": 64 << 30,
            "limits": {"memlock": None, "nofile": 65536},
            "shared_memory": (32 << 30, 32 << 30),
            "ucx": WorkerUcx("1.21.0", "wheel", frozenset({"self", "tcp", "sysv", "posix", "cma"})),
            "packages": {
                "dask": "2026.7.1",
                "distributed": "2026.7.1",
                "ucxx-cu13": "0.52.0",
                "distributed-ucxx-cu13": "0.52.0",
            },
        }
        return HostCheckFacts(root=tmp_path, **{**sound, **attributes})

    return make
