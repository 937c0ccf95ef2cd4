"""The command line of `tune`: what is refused before anything starts, and what a dry run says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cli import tune as command
from merge_bench.cluster.signals import Interrupted
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import AddedConfigLine, Config, TuningStepLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.report.next_step import next_step_after_recorded_tuning
from merge_bench.tune import tune_campaign
from merge_bench.tune.evaluator import Candidate
from tests.helpers.synthetic_campaigns import write_campaign
from tests.tune.clusters import Cluster
from tests.tune.conftest import Tune
from tests.tune.factorials import value

SMALL = ("--chunk", "2e4", "--workers", "2")


@pytest.fixture
def ended(tune: Tune, tmp_path: Path) -> Tune:
    """Runs the command where it must make no launch and no results; gives its exit status."""

    def run(*words: str | Path) -> int:
        status = tune(*words)
        assert not (tmp_path / "results").exists()
        return status

    return run


def test_a_dry_run_says_what_is_tried_and_what_is_not_and_why(
    ended: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "space.toml"
    space.write_text(
        '[[setting]]\nname = "here"\nvalues = [{ label = "y", set = { GLIBC_TUNABLES = "glibc.malloc.hugetlb=1" } }]\n'
        '[[setting]]\nname = "there"\nrequires = ["several-hosts"]\n'
        'values = [{ label = "y", set = { UCX_TLS = "tcp" } }]\n'
        '[[setting]]\nname = "fixed"\nvalues = [{ label = "y", set = { MERGE_BENCH_MESSAGE_SIZE = "1MiB" } }]\n'
    )
    output = tmp_path / "tuned.cfg"
    assert ended("--space", space, "--dry-run", "--output", output, "--message-size", "2MiB", *SMALL) == 0
    *lines, time = capsys.readouterr().out.splitlines()
    assert time.startswith("## this takes about ")
    assert lines == [
        "here=y: GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        "# there=y: requires several-hosts (not met in this run)",
        "# fixed=y: the command line sets --message-size",
    ]
    assert not output.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--space", "nowhere.toml"), "--space nowhere.toml: No such file"),
        (("--only", "mutex,nothing"), "the tuning space has no setting nothing"),
        (("--only", "gpudirect-rdma"), "this run cannot try any of the tuning settings: gpudirect-rdma=y: "),
        (("--output", "nowhere/tuned.cfg"), "--output nowhere/tuned.cfg: there is no folder"),
        (("--output", "."), "is a folder; name a file"),
        (("--plot", "a.pdf"), "must end in .png, .svg or .html"),
        (("--plot", "nowhere/a.png"), "--plot nowhere/a.png: there is no folder"),
        (("--only", "mutex", "--max-launches", "8"), "these settings need at least 9"),
        (("--only", "mutex", "--chunk", "1e4,2e4", "--confirm", "6"), "--confirm 6 is too low; use at least"),
        (("--verify", "off"), "--verify off"),
        (("--metric", "bandwidth", "--exchange", "dask"), "--metric bandwidth needs --exchange ucx"),
        (("--strategy", "exhaustive"), "more than 256 combinations"),
        (("--threshold", "-1%"), "--threshold"),
        (("--most-blocks", "2"), "--most-blocks"),
        (("nowhere.cfg",), "nowhere.cfg"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_starts(
    ended: Tune, capsys: pytest.CaptureFixture[str], words: Sequence[str], says: str
) -> None:
    assert ended("--output", "tuned.cfg", *SMALL, *words) == 2
    errors = capsys.readouterr().err
    assert says in errors
    assert len(errors.strip().splitlines()) == 1


def test_an_interruption_names_the_records(tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*given: object) -> int:
        raise Interrupted("interrupted")

    assert tune("--only", "mutex", *SMALL, launch=interrupted) == Interrupted.exit_status
    (records,) = (tmp_path / "results").glob("*/records.jsonl")
    assert capsys.readouterr().out == f"Records: {records.relative_to(tmp_path)}\n"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_budget_in_which_nothing_can_be_tried_ends_with_status_3_and_advises_one_that_is_accepted(
    tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str]
) -> None:
    def slow(job: PlannedLaunch, writer: CampaignWriter, progress: object, index: int) -> int:
        return Cluster(writer, seconds=30.0).launch(job, index)

    assert tune("--only", "mutex", "--budget", "3m", *SMALL, *words, launch=slow) == 3
    printed = capsys.readouterr().out
    if words:
        assert "is too short" in json.loads(printed)["error"]["message"]
        return
    assert "Nothing was decided" in printed
    assert "seems faster" not in printed
    assert "Next: " in printed
    (records,) = (tmp_path / "results").glob("*/records.jsonl")
    campaign = read_campaign(records.parent)
    assert campaign.end is not None
    assert campaign.end.status == 3
    step = next_step_after_recorded_tuning(campaign)
    assert "searches anew" in step.does


def test_a_baseline_with_the_name_of_a_candidate_is_refused(
    ended: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mutex=y.cfg").write_text("export UCX_RNDV_THRESH=2k\n")
    assert ended("./mutex=y.cfg", "--output", "tuned.cfg", *SMALL) == 2
    assert "rename the baseline's file" in capsys.readouterr().err


def test_errors_are_a_document_with_json(ended: Tune, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--only", "nothing", "--json", *SMALL, "--output", "tuned.cfg") == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def test_the_default_output_is_a_config_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "my cluster")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned-my-cluster.cfg").mkdir()
    with pytest.raises(UsageError, match=r"tuned-my-cluster\.cfg is a folder"):
        command.tune.main([], standalone_mode=False)


def test_the_best_so_far_is_what_the_steps_have_left(tmp_path: Path) -> None:
    from merge_bench.records.reader import read_campaign
    from merge_bench.records.writer import CampaignWriter

    def found(*steps: tuple[str, str, str, str, str]) -> list[Candidate]:
        folder = write_campaign(tmp_path / str(len(steps)), end=None)
        writer = CampaignWriter.resume(folder)
        assert writer is not None
        with writer:
            for names in (["a=y"], ["b=y"], ["a=y", "b=y"]):
                writer.write(AddedConfigLine(config=Config(name="+".join(names)), settings=names))
            for at, (phase, config, against, setting, decision) in enumerate(steps):
                writer.write(
                    TuningStepLine(
                        phase=phase,
                        config=config,
                        against=against,
                        setting=setting,
                        decision=decision,
                        reason="",
                        ratio=1.1 + at / 10,
                        launches=3,
                    )
                )
        return tune_campaign.candidates_worth_confirming(read_campaign(folder), [value("a"), value("b")])

    def best(*steps: tuple[str, str, str, str, str]) -> str:
        return ", ".join(candidate.config_name("") for candidate in found(*steps)) or "nothing"

    singles = [("screen", "a=y", "optimized", "a=y", "kept"), ("screen", "b=y", "optimized", "b=y", "kept")]
    assert best() == "nothing"
    assert best(*singles) == "b=y, a=y"
    joined = [*singles, ("combine", "b=y", "optimized", "b=y", "kept"), ("combine", "a=y+b=y", "b=y", "a=y", "kept")]
    assert best(*joined) == "a=y+b=y"
    undecided = ("screen", "a=y", "optimized", "a=y", "undecided")
    assert best(undecided) == "a=y"
    assert best(undecided, singles[1]) == "b=y, a=y"  # what gained comes first
    assert best(("screen", "a=y", "optimized", "a=y", "dropped")) == "nothing"
    assert best(*joined, ("ablate", "a=y+b=y", "a=y", "b=y", "dropped")) == "a=y, b=y"
    # A resumed tuning has its confirmation, and what was removed after it.
    stopped = ("search", "a=y+b=y", "optimized", "a=y+b=y", "stopped")
    repaired = ("ablate", "b=y", "a=y+b=y", "a=y", "dropped"), ("ablate", "", "b=y", "b=y", "dropped")
    for end in (stopped, ("confirm", "a=y+b=y", "optimized", "a=y+b=y", "rejected")):
        assert best(*joined, end, *repaired) == "a=y+b=y"
