"""The command line in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from merge_bench import cli


def exit_status(*words: str | Path) -> int:
    """With what ``merge-bench WORDS`` ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["merge-bench", *map(str, words)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
    return int(leaving.value.code or 0)
