"""`python -m merge_bench`."""

from __future__ import annotations

from merge_bench.cli import main

main()
