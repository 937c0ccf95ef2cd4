"""The folder of strategies: what its files declare is what ``--strategy`` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.tune.strategies import SearchStrategy, strategies
from tests.helpers.members import run_with

DOCS = Path(__file__).parents[2] / "docs"
FIRST_VALUE = """
from merge_bench.tune.strategies import SearchStrategy


def tune(space, values, evaluator, options):
    from merge_bench.tune.evaluator import Candidate

    return Candidate.from_values(values[0])


STRATEGY = SearchStrategy(
    "first-value", "Take the first value without a test.", 100, tune, first_block=lambda space, values: 1
)
"""


@pytest.mark.slow
def test_one_file_more_is_one_strategy_more(tmp_path: Path) -> None:
    (tmp_path / "first_value.py").write_text(FIRST_VALUE)
    shown = run_with("merge_bench.tune.strategies", tmp_path, "tune", "--help").stdout
    assert f"--strategy {'|'.join([*strategies(), 'first-value'])}" in " ".join(shown.split())
    words = ("tune", "--strategy", "first-value", "--max-launches", "2", "--dry-run")
    refused = run_with("merge_bench.tune.strategies", tmp_path, *words, status=2).stderr
    assert "need at least 3" in refused  # its own first block


@pytest.mark.parametrize("strategy", strategies().values(), ids=lambda strategy: strategy.name)
def test_every_strategy_is_described(strategy: SearchStrategy) -> None:
    assert f"- `{strategy.name}`: {strategy.help}" in (DOCS / "tune.md").read_text(encoding="utf-8").splitlines()
