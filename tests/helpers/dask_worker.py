"""This process as a Dask worker with the plugin, as far as steps look at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from merge_bench.merge import worker


@dataclass
class DaskWorker:
    """As much of a Dask worker as the steps look at."""

    address: str
    local_directory: str
    plugins: dict[str, Any] = field(default_factory=dict)

    @property
    def plugin(self) -> worker.MergeWorker:
        """The plugin that the steps use."""
        plugin: worker.MergeWorker = self.plugins[worker.PLUGIN]
        return plugin


def become_worker(monkeypatch: pytest.MonkeyPatch, folder: Path) -> DaskWorker:
    """Run the steps of a test on a worker whose files are in `folder`."""
    made, plugin = DaskWorker("tcp://127.0.0.1:1234", str(folder)), worker.MergeWorker()
    plugin.setup(made)
    made.plugins[worker.PLUGIN] = plugin
    monkeypatch.setattr(worker, "get_worker", lambda: made)
    return made
