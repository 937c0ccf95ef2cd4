"""Variables that end a worker in a library are found before any is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.campaign.machine_checks import check_library_variables
from merge_bench.errors import UsageError
from tests.helpers.runs import environment


@pytest.fixture
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("tmp"))


@pytest.mark.parametrize(
    ("name", "value"), [("NUMBA_NUM_THREADS", "0"), ("NUMBA_CPU_FEATURES", "foo"), ("PYTHONMALLOC", "foo")]
)
def test_a_value_that_ends_a_process_is_refused_with_its_name(
    surroundings: dict[str, str], name: str, value: str
) -> None:
    with pytest.raises(UsageError, match=rf"would end at its start with .*{name}={value}: its process (was|ended)"):
        check_library_variables({name: value}, surroundings)


@pytest.mark.slow
def test_the_environment_is_looked_at_too_and_harmless_values_pass(surroundings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="POLARS_MAX_THREADS=0"):
        check_library_variables({}, {**surroundings, "POLARS_MAX_THREADS": "0"})
    check_library_variables({"NUMBA_OPT": "2", "MALLOC_ARENA_MAX": "2"}, surroundings)


def test_nothing_is_started_without_such_a_variable(tmp_path: Path, surroundings: dict[str, str]) -> None:
    (tmp_path / "numba.py").write_text("raise SystemExit('it was started')")
    broken = {**surroundings, "PYTHONPATH": str(tmp_path)}
    check_library_variables({"UCX_TLS": "tcp", "OMP_NUM_THREADS": "2"}, broken)
    with pytest.raises(UsageError, match=r"NUMBA_OPT=2: its process ended with status 1 \(it was started\)"):
        check_library_variables({"NUMBA_OPT": "2"}, broken)
