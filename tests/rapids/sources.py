"""Which files of ours use RAPIDS, and what they use; by whatever library they are looked up in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.rapids.kinds import Library
from tests.rapids.uses import Reading

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("cuda", "cudf", "cupy", "dask_cuda", "dask_cudf", "pylibcudf", "pynvml", "rmm")
FOLDERS = ("merge_bench", "benchmarks", "tests/gpu")
# Classes of parameters whose values come from another process, where no file shows them.
DECLARED = {
    "merge_bench/exchange/dask_steps.py": {"baseline_check.frame": "cudf.core.dataframe.DataFrame"},
    "tests/gpu/test_cudf_engine.py": {
        "copy_on_device.source": "rmm.pylibrmm.device_buffer.DeviceBuffer",
        "copy_on_device.target": "rmm.pylibrmm.device_buffer.DeviceBuffer",
    },
}
_IMPORT = re.compile(rf"^\s*(?:import|from) +(?:{'|'.join(LIBRARIES)})\b", re.MULTILINE)


def files(root: Path = ROOT) -> list[str]:
    """Files that import one of the libraries, relative to `root`."""
    found = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*.py"))]
    return [str(file.relative_to(root)) for file in found if _IMPORT.search(file.read_text())]


def read(library: Library, names: Iterable[str] | None = None, root: Path = ROOT) -> dict[str, Reading]:
    """What each of these files, by default all of `files`, takes from the libraries."""
    chosen = files(root) if names is None else names
    return {
        name: Reading(
            (root / name).read_text(), library, LIBRARIES, DECLARED.get(name, {}), strict=not name.startswith("tests/")
        )
        for name in chosen
    }
