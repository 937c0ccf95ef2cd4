"""A program that prints the UCX of its environment: version, yes or no for InfiniBand, and the path of libucp.

It checks the loaded libraries: the package `libucx` silently loads its own UCX if it cannot load the system's.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from merge_bench.config.libraries import library_path


def has_infiniband(libucp: Path) -> bool:
    """Whether the InfiniBand module of this libucp exists and can be loaded (it needs libibverbs)."""
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
        import ucxx  # loads libucp as a worker does, and refuses a version that does not fit
    except (ImportError, OSError) as error:
        print(f"merge_bench: UCXX cannot use the installed UCX: {error}", file=sys.stderr)
        return 1

    libucp = library_path("libucp")
    if libucp is None:
        return 1
    version = ".".join(map(str, ucxx.get_ucx_version()))
    print(version, "yes" if has_infiniband(libucp) else "no", libucp)
    return 0


if __name__ == "__main__":
    sys.exit(main())
