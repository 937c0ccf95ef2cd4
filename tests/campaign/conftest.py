"""What tests of campaigns share."""

from __future__ import annotations

import pytest

from merge_bench.campaign import campaign as campaigns
from merge_bench.campaign import resume


@pytest.fixture
def same_software(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit, sources and versions that are not read: that takes longer than everything else in these tests."""
    monkeypatch.setattr(campaigns, "git_state", lambda: {"commit": "c", "dirty": False, "host": "h"})
    monkeypatch.setattr(resume.host_agent, "fingerprint", lambda package: "f")
    monkeypatch.setattr(resume.machine, "versions", lambda: {"dask": "1"})
