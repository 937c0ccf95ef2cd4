"""Whether the figures of a run are verified, or its result was wrong."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from merge_bench.records import schema as s
from tests.analysis.summaries import codes, document
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign


def test_verify_off_marks_everything_unverified(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path, Script(plan=plan(verify="off"))))
    assert found["verified"] is False
    assert codes(found) == ["unverified"]
    assert "the numbers are unverified" in found["warnings"][0]["message"]
    assert found["error"] is None


@pytest.mark.parametrize("verify", ["ends", "every", "full"])
@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_a_run_is_verified_when_every_check_was_made(tmp_path: Path, verify: str, warmup: int) -> None:
    base = write_campaign(tmp_path, Script(plan=plan(verify="ends" if verify == "full" else verify, warmup=warmup)))
    path = base / "records.jsonl"
    path.write_text(path.read_text().replace('"verify":"ends"', f'"verify":"{verify}"'))
    assert document(base)["verified"] is True


@pytest.mark.parametrize(("verify", "after"), [("ends", None), ("ends", 2), ("every", 0), ("every", 1), ("every", 2)])
def test_a_missing_check_leaves_a_run_unverified(tmp_path: Path, verify: str, after: int | None) -> None:
    folder = write_campaign(tmp_path, Script(plan=plan(verify=verify)))
    path = folder / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not ('"verification"' in line and json.loads(line)["after"] == after)]
    assert len(kept) == len(lines) - 1
    path.write_text("".join(kept))
    found = document(folder)
    assert found["verified"] is False
    assert codes(found) == ["not-verified"]


def test_a_wrong_result_is_the_error_even_without_a_failure_line(tmp_path: Path) -> None:
    def bad(check: s.VerificationLine) -> s.VerificationLine:
        return msgspec.structs.replace(check, ok=check.after is None, message="2 rows are missing")

    found = document(write_campaign(tmp_path, Script(check=bad)))
    assert found["verified"] is False
    assert found["error"] == {"code": "wrong-result", "message": "2 rows are missing", "host": None, "rank": None}
    assert codes(found) == ["wrong-result"]


def test_one_wrong_launch_makes_a_run_wrong(tmp_path: Path) -> None:
    def bad(check: s.VerificationLine) -> s.VerificationLine:
        return msgspec.structs.replace(check, ok=False)

    scripts = [Script(plan=plan(launches=2)), Script(index=1, plan=plan(launches=2), check=bad, end_status=4)]
    found = document(write_campaign(tmp_path, *scripts, end=4))
    assert found["verified"] is False
    assert found["error"]["code"] == "wrong-result"
