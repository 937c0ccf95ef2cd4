"""`ucxx.benchmarks.cudf_merge` with the one header field that it reads and that cuDF no longer writes.

Its receivers look for a frame's class under ``type-serialized``. cuDF 26.10 names it elsewhere and differently, so that
UCXX 0.52's program fails in its workers and then never ends. Where cuDF writes the field, nothing changes.
The worker processes load this file too, since each loads what its parent was started with.
"""

from __future__ import annotations

import pickle
from typing import Any

from ucxx.benchmarks import cudf_merge

FIELD = "type-serialized"


def mend(frame_class: Any) -> None:
    """Make `frame_class.serialize` write the field."""
    original = frame_class.serialize

    def serialize(self: Any) -> tuple[dict[str, Any], list[Any]]:
        header, frames = original(self)
        header.setdefault(FIELD, pickle.dumps(type(self)))
        return header, frames

    frame_class.serialize = serialize


mend(cudf_merge.cudf.DataFrame)

if __name__ == "__main__":
    cudf_merge.main()
