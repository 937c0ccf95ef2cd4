"""Tables of plain text and numbers; what is in results is data, and made visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from merge_bench.view.text import visible


def frame_of(
    columns: Mapping[str, Sequence[Any]], *, numbers: Sequence[str], whole: Sequence[str] = ()
) -> pd.DataFrame:
    """A data frame whose columns have the same kinds with rows and without; `whole`: columns of whole numbers."""
    kinds = {name: float if name in numbers else int if name in whole else object for name in columns}
    cells = {name: [visible(x) if isinstance(x, str) else x for x in values] for name, values in columns.items()}
    return pd.DataFrame(cells).astype(kinds)
