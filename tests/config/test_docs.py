"""What docs/configs.md says by hand, against the code."""

from __future__ import annotations

import re
from pathlib import Path

from merge_bench.config import check

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "configs.md").read_text(encoding="utf-8")


def test_every_conflict_is_described() -> None:
    codes = re.findall(r'SettingsConflict\(\s*"([a-z-]+)"', Path(check.__file__).read_text(encoding="utf-8"))
    assert len(codes) > 10
    assert [code for code in codes if f"`{code}`" not in TEXT] == []
