"""Makes wheels of a few lines. The miniature repository has a copy of this file as its build backend."""

import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(folder: str | Path, name: str, version: str, files: Mapping[str, str]) -> str:
    """A wheel with these files; returns its file name."""
    wheel = f"{name}-{version}-py3-none-any.whl"
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(Path(folder, wheel), "w") as archive:
        for path, text in (*files.items(), *((f"{name}-{version}.dist-info/{each}", info[each]) for each in info)):
            archive.writestr(path, text)
    return wheel


def build_editable(folder: str, settings: object = None, metadata: object = None) -> str:
    """What pip calls for ``pip install -e``."""
    return make_wheel(folder, "merge_bench", "1", {"merge_bench_here.py": ""})
