"""Real releases of UCX: merges and measurements that load them, each in its turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from merge_bench.config.ucx_releases import UcxRelease, find_or_install_release
from merge_bench.errors import UsageError
from merge_bench.records.schema import CampaignLine, LaunchLine, ProbeLine
from tests.helpers.runs import SMALL, command

pytestmark = [pytest.mark.cluster, pytest.mark.ucx_releases]

ENDS = ("1.19.0", "1.22.0")
VERSIONS = ("1.19.0", "1.20.1", "1.21.0", "1.22.0")


def installed(*versions: str) -> dict[str, UcxRelease]:
    """Releases in the user's own cache, so that they are downloaded once."""
    try:
        return {version: find_or_install_release(version) for version in versions}
    except UsageError as error:
        pytest.skip(f"needs releases of UCX: {error}")


@pytest.mark.parametrize("versions", [ENDS, pytest.param(VERSIONS, marks=pytest.mark.soak)])
def test_merges_load_the_release_that_their_run_names(versions: tuple[str, ...], tmp_path: Path) -> None:
    releases = installed(*versions)
    done = command(tmp_path, *SMALL, "--workers", "2", "--ucx", ",".join(versions)).check_ended(0)
    (head,) = done.of(CampaignLine)
    loaded = {head.plans[line.plan]["ucx"]: [worker.ucx for worker in line.workers] for line in done.of(LaunchLine)}
    assert sorted(loaded) == list(versions)
    for version, workers in loaded.items():
        for ucx in workers:
            assert (ucx.version, ucx.origin, ucx.sha256) == (version, "wheel", releases[version].sha256)
            assert Path(ucx.path or "").is_relative_to(releases[version].folder.resolve())
    assert len({len(workers[0].config) for workers in loaded.values()}) == len(versions)  # releases add settings


def test_ucx_perftest_is_that_of_the_release(tmp_path: Path) -> None:
    installed(*ENDS)
    words = ("--ucx", ",".join(ENDS), "--sizes", "8", "--iterations", "10", "--launches", "1")
    done = command(tmp_path, *words, verb=("probe", "p2p")).check_ended(0)
    methods = {line.method.split(",")[0] for line in done.of(ProbeLine)}
    assert methods == {f"ucx_perftest of UCX {version} (wheel)" for version in ENDS}
    document = json.loads(done.output)
    assert {row["config"] for row in document["rows"]} == {"UCX 1.19.0", "UCX 1.22.0"}
