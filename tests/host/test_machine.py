"""What the records say about the machine."""

from __future__ import annotations

from pathlib import Path

from merge_bench.host.machine import _cache_bytes


def test_the_last_cache_is_the_largest(tmp_path: Path) -> None:
    for index, size in enumerate(("48K", "32768K", "1024K", "none")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert _cache_bytes(tmp_path) == 32 << 20
    assert _cache_bytes(tmp_path / "none") is None
