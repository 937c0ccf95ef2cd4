"""Real releases of UCX: merges and measurements that load them, each in its turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from merge_bench.config.ucx_releases import UcxRelease, find_release
from merge_bench.errors import UsageError
from merge_bench.records.schema import CampaignLine, LaunchLine, ProbeLine
from tests.helpers.runs import SMALL, command

pytestmark = [pytest.mark.cluster, pytest.mark.ucx_releases]

VERSIONS = ("1.19.0", "1.20.1", "1.21.0", "1.22.0")


@pytest.fixture(scope="module")
def releases() -> dict[str, UcxRelease]:
    """Four releases in the user's own cache, so that they are downloaded once."""
    try:
        return {version: find_release(version) for version in VERSIONS}
    except UsageError as error:
        pytest.skip(f"needs releases of UCX: {error}")


def test_merges_load_the_release_that_their_run_names(releases: dict[str, UcxRelease], tmp_path: Path) -> None:
    done = command(tmp_path, *SMALL, "--workers", "2", "--ucx", ",".join(VERSIONS)).check_ended(0)
    (head,) = done.of(CampaignLine)
    loaded = {head.plans[line.plan]["ucx"]: [worker.ucx for worker in line.workers] for line in done.of(LaunchLine)}
    assert sorted(loaded) == list(VERSIONS)
    for version, workers in loaded.items():
        for ucx in workers:
            assert (ucx.version, ucx.origin, ucx.sha256) == (version, "wheel", releases[version].sha256)
            assert Path(ucx.path or "").is_relative_to(releases[version].folder.resolve())
    assert len({len(workers[0].config) for workers in loaded.values()}) == len(VERSIONS)  # releases add settings


def test_ucx_perftest_is_that_of_the_release(releases: dict[str, UcxRelease], tmp_path: Path) -> None:
    words = ("--ucx", "1.19.0,1.22.0", "--sizes", "8", "--iterations", "10", "--launches", "1")
    done = command(tmp_path, *words, verb=("probe", "p2p")).check_ended(0)
    methods = {line.method.split(",")[0] for line in done.of(ProbeLine)}
    assert methods == {f"ucx_perftest of UCX {version} (wheel)" for version in ("1.19.0", "1.22.0")}
    document = json.loads(done.output)
    assert {row["config"] for row in document["rows"]} == {"UCX 1.19.0", "UCX 1.22.0"}
