"""What an interrupted run says is there, and what is missing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from merge_bench.analysis.documents import RunDocument
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign


def interrupted(folder: Path, *, without: tuple[str, ...], iterations: int | None = None) -> RunDocument:
    """A run of three iterations whose launch was interrupted before lines of these kinds were written."""
    planned = plan() | {"link_rounds": 20} | ({} if iterations is None else {"iterations": iterations})
    records = write_campaign(folder, Script(plan=planned)) / "records.jsonl"
    gone = tuple(f'"kind":"{kind}"'.encode() for kind in (*without, "launch_end", "end"))
    kept = [line for line in records.read_bytes().splitlines(keepends=True) if not any(each in line for each in gone)]
    failure = s.FailureLine(launch=0, code="interrupted", message="interrupted by SIGINT")
    ended = s.LaunchEndLine(launch=0, status=3, seconds=3.0), s.CampaignEndLine(status=3)
    more = b"".join(msgspec.json.encode(line) + b"\n" for line in (failure, *ended))
    records.write_bytes(b"".join(kept) + more)
    document = summarize_campaign(read_campaign(records))
    assert isinstance(document, RunDocument)
    return document


@pytest.mark.parametrize(
    ("without", "iterations", "found"),
    [
        (("link", "memory"), None, ": all 3 iterations are there; missing: the link limit, peak memory"),
        (
            ("verification", "link", "memory"),
            None,
            ": all 3 iterations are there; missing: the check of the result, the link limit, peak memory",
        ),
        (("verification", "link", "memory"), 100, " after 3 of 100 iterations"),
        (("iteration", "verification", "link", "memory"), None, " before the first iteration, so nothing was"),
    ],
    ids=["no link limit", "not proven", "in the middle", "nothing"],
)
def test_what_is_missing_is_named(tmp_path: Path, without: tuple[str, ...], iterations: int | None, found: str) -> None:
    error = interrupted(tmp_path, without=without, iterations=iterations).error
    assert error is not None
    assert error.message.startswith(f"interrupted by SIGINT{found}")


def test_a_run_without_iterations_has_no_numbers_that_are_unverified(tmp_path: Path) -> None:
    nothing = interrupted(tmp_path / "a", without=("iteration", "verification", "link", "memory"))
    assert [each.code for each in nothing.warnings if "verified" in each.code] == []
    some = interrupted(tmp_path / "b", without=("verification", "link", "memory"))
    assert [each.code for each in some.warnings if "verified" in each.code] == ["not-verified"]
