"""What the records say about the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.host import kernel_files
from merge_bench.host.machine import cache_bytes_by_level, describe_hardware, format_cpu_id


def test_a_level_has_the_size_of_its_largest_cache(tmp_path: Path) -> None:
    for index, (level, size) in enumerate((("1", "48K"), ("1", "32K"), ("3", "32768K"), ("2", "1024K"), ("4", "none"))):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "level").write_text(f"{level}\n")
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert cache_bytes_by_level(tmp_path) == {1: 48 << 10, 2: 1 << 20, 3: 32 << 20}
    assert cache_bytes_by_level(tmp_path / "none") == {}


X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 207
model name\t: Intel(R) Xeon(R) Processor
stepping\t: 2
"""
ARM = """processor\t: 0
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1
"""


@pytest.mark.parametrize(
    ("text", "expected"), [(X86, "GenuineIntel-6-207-2"), (ARM, "0x41-0xd0c-0x3-1"), ("processor : 0\n", None)]
)
def test_a_processor_is_known_by_more_than_its_name(text: str, expected: str | None, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert format_cpu_id(kernel_files.read_named_values(tmp_path / "cpuinfo")) == expected


def test_this_machine_has_an_id() -> None:
    described = Path("/proc/cpuinfo").read_text()
    found = describe_hardware().cpu_id
    assert found
    assert all(part in described for part in found.split("-"))
