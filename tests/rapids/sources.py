"""Which files of ours use RAPIDS, and what they use; by whatever library they are looked up in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.rapids.kinds import Kinds, Library, Name, Several
from tests.rapids.uses import Reading

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = (
    "cuda", "cudf", "cudf_streaming", "cupy", "dask_cuda", "dask_cudf", "nvtx", "pylibcudf", "pynvml",
    "rapidsmpf", "rmm",
)  # fmt: skip
FOLDERS = ("merge_bench", "benchmarks", "tests/gpu")
# Classes of parameters whose values come from another process, where no file shows them.
DECLARED = {
    "benchmarks/on_gpu/programs/libcudf_join.py": {
        "gather.right": "pylibcudf.table.Table",
        "to_host.table": "pylibcudf.table.Table",
    },
    "benchmarks/on_gpu/programs/libcudf_partition.py": {"verify.found": "pylibcudf.table.Table"},
    "merge_bench/merge/exchange/dask.py": {"partition_to_arrow.frame": "cudf.core.dataframe.DataFrame"},
    "tests/gpu/test_cudf_engine.py": {
        "copy_on_device.source": "rmm.pylibrmm.device_buffer.DeviceBuffer",
        "copy_on_device.target": "rmm.pylibrmm.device_buffer.DeviceBuffer",
    },
}
_IMPORT = re.compile(rf"^\s*(?:import|from) +(?:{'|'.join(LIBRARIES)})\b", re.MULTILINE)


def read(library: Library, root: Path = ROOT) -> dict[str, Reading]:
    """What each file of ours takes from the libraries: those that import it, and those that get it from there."""
    paths = [path for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    texts = {str(path.relative_to(root)): path.read_text() for path in paths}
    found: dict[str, Reading] = {}
    given: dict[str, Kinds] = {}
    while True:
        for name, text in sorted(texts.items()):
            taken = _taken(text, given)
            if (_IMPORT.search(text) or taken) and (name not in found or found[name].others != taken):
                found[name] = reading(text, name, library, taken)
        now = {
            f"{_module(name)}.{function}": kinds for name in found for function, kinds in found[name].gives().items()
        }
        if now == given:
            return found
        given = now


def reading(text: str, name: str, library: Library, given: Mapping[str, Kinds]) -> Reading:
    """What a file takes; `given`: what functions of other files give it."""
    modules = _IMPORT.search(text) or any(_has_module(kinds) for kinds in given.values())
    strict = bool(modules) and not name.startswith("tests/")
    return Reading(text, library, LIBRARIES, given, declared=DECLARED.get(name, {}), strict=strict)


def _has_module(kinds: Kinds) -> bool:
    return any(
        isinstance(kind, Name) or (isinstance(kind, Several) and any(map(_has_module, kind.items))) for kind in kinds
    )


def _module(name: str) -> str:
    return name.removesuffix(".py").replace("/", ".")


def _taken(text: str, given: Mapping[str, Kinds]) -> dict[str, Kinds]:
    """Those of the functions whose names, and their modules' names, a file has in it."""
    found = {}
    for path, kinds in given.items():
        module, function = path.split(".")[-2:]
        if re.search(rf"\b{module}\b", text) and re.search(rf"\b{function}\b", text):
            found[path] = kinds
    return found
