"""Print which UCX this environment loads: its version, yes or no for InfiniBand, and the path of libucp.

The answer is read off the loaded libraries, because asking for the system's UCX falls back to the wheel's silently.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


def loaded_library(name: str) -> Path | None:
    """The file that this process has mapped for a library, if any."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path and Path(path).name.startswith(name):
            return Path("/" + path)
    return None


def has_infiniband(libucp: Path) -> bool:
    """Whether the InfiniBand module that belongs to this libucp is there and loads (it needs libibverbs)."""
    folder = Path(os.environ.get("UCX_MODULE_DIR") or libucp.parent / "ucx")
    for module in sorted(folder.glob("libuct_ib.so*")):
        try:
            ctypes.CDLL(str(module))
        except OSError:
            continue
        return True
    return False


def main() -> int:
    try:
        import ucxx  # noqa: F401  (loads libucp as a worker does, and refuses a version that does not fit)
    except (ImportError, OSError) as error:
        print(f"merge_bench: UCXX cannot use the UCX it finds: {error}", file=sys.stderr)
        return 1

    libucp = loaded_library("libucp.so")
    if libucp is None:
        return 1
    version = [ctypes.c_uint() for _ in range(3)]
    ctypes.CDLL(str(libucp)).ucp_get_version(*map(ctypes.byref, version))
    print(".".join(str(part.value) for part in version), "yes" if has_infiniband(libucp) else "no", libucp)
    return 0


if __name__ == "__main__":
    sys.exit(main())
