"""An imported text is a campaign like any other, but for what the text does not tell."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import resource
from pathlib import Path
from typing import Any

import pytest

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import VerificationState, verification_state
from merge_bench.campaign.importing import import_file
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.report.run import print_campaign_report
from tests.campaign.importing.texts import BANDWIDTHS, WALLS, text
from tests.helpers.documents import summarized
from tests.helpers.strict_records import validate

GIB = 2**30


def brought_in(folder: Path, content: str, name: str = "merge.out") -> Campaign:
    file = folder / name
    file.write_text(content)
    return read_campaign(import_file(file, folder / "results"))


def codes(document: dict[str, Any]) -> dict[str, str]:
    return {warning["code"]: warning["message"] for warning in document["warnings"]}


def report_of(campaign: Campaign) -> str:
    page = io.StringIO()
    print_campaign_report(campaign, file=page)
    return page.getvalue()


def test_the_records_are_strictly_valid_and_whole(tmp_path: Path) -> None:
    campaign = brought_in(tmp_path, text())
    for line in campaign.records.read_bytes().splitlines():
        validate(line)
    assert campaign.end is not None
    assert campaign.end.status == 0
    assert campaign.folder.name == campaign.head.campaign_id
    assert campaign.launches[0].complete
    assert summarized(campaign)["error"] is None


def test_the_text_itself_is_kept_with_its_checksum(tmp_path: Path) -> None:
    campaign = brought_in(tmp_path, text())
    kept = (campaign.folder / "logs" / "merge.out").read_bytes()
    assert kept == text().encode()
    source = campaign.head.imported_from
    assert source is not None
    assert source.sha256 == hashlib.sha256(kept).hexdigest()
    assert (source.program, source.file) == ("cudf-merge", str(tmp_path / "merge.out"))


def test_what_the_text_tells_is_in_the_records(tmp_path: Path) -> None:
    campaign = brought_in(tmp_path, text("ucxx"))
    (run,) = campaign.runs
    (launch,) = campaign.launches
    assert launch.line is not None
    assert (launch.line.data_bytes, launch.line.rows) == (16_000_000 * 32, 32_000_000)
    assert run.options == {
        "rows_per_chunk": 1_000_000,
        "workers": 16,
        "iterations": 3,
        "launches": 1,
        "engine": "cudf",
        "verify": "imported",
    }
    assert [iteration.wall_seconds for iteration in launch.timed] == list(WALLS)
    for iteration, rate in zip(launch.timed, BANDWIDTHS, strict=True):
        assert iteration.imported is not None
        assert iteration.imported.wall_resolution_seconds == 1e-5
        assert aggregate.iteration_bandwidth(iteration) == iteration.imported.bandwidth_bytes_per_second
        assert iteration.imported.bandwidth_bytes_per_second == pytest.approx(rate, rel=5e-3)
    assert campaign.head.imported_from is not None
    assert campaign.head.imported_from.fraction == 0.3


def test_what_the_text_does_not_tell_is_null_or_empty(tmp_path: Path) -> None:
    campaign = brought_in(tmp_path, text())
    (launch,) = campaign.launches
    assert launch.line is not None
    assert launch.end is not None
    told = [
        launch.line.cluster.protocol,
        launch.line.cluster.scheduler,
        launch.line.startup_seconds,
        launch.end.seconds,
    ]
    assert [*told, campaign.head.seed, campaign.head.configs[0].path, launch.link, launch.memory] == [None] * 8
    assert (launch.line.workers, campaign.head.configs[0].variables) == ([], {})
    assert all(i.workers == [] and i.pairs == [] and i.barrier_skew_seconds is None for i in launch.iterations)
    document = summarized(campaign)
    assert document["result_rows"] is None
    assert document["link"] is None
    assert document["phases_seconds"] == {"partition": None, "exchange": None, "join": None}
    assert document["bandwidth_bytes_per_second"]["per_worker"] == []
    assert (document["bandwidth_bytes_per_second"]["min"], document["bandwidth_bytes_per_second"]["max"]) == (
        None,
        None,
    )


def test_it_is_verified_nowhere(tmp_path: Path) -> None:
    campaign = brought_in(tmp_path, text())
    (run,) = campaign.runs
    assert verification_state(run, run.launches) is VerificationState.IMPORTED
    assert VerificationState.IMPORTED.figure_mark == "UNVERIFIED"
    document = summarized(campaign)
    assert document["verified"] is False
    assert codes(document)["unverified"].endswith("merge_bench did not verify this imported result")
    page = report_of(campaign).splitlines()
    assert "UNVERIFIED: merge_bench did not verify this imported result" in page
    numbers = [line for line in page if re.match(r"Wall-clock|Bandwidth|Throughput| +\d", line)]
    assert len(numbers) == 3 + 3 + 3 + 3  # headline, medians, iterations, conclusion
    assert all(line.endswith("UNVERIFIED") for line in numbers[:-3])
    assert page[page.index(numbers[-3]) - 2].startswith("UNVERIFIED: ")  # once, above the figures


def test_median_and_headline_stand_side_by_side(tmp_path: Path) -> None:
    document = summarized(brought_in(tmp_path, text()))
    assert document["wall_seconds"]["median"] == WALLS[1]
    assert document["throughput_bytes_per_second"]["median"] == pytest.approx(9.46 * GIB, rel=1e-3)
    headline = document["imported"]["headline"]
    assert headline["wall_seconds"] == pytest.approx(sum(WALLS) + 0.001, abs=5e-6)
    assert headline["throughput_bytes_per_second"] == pytest.approx(3 * 512e6 / 0.22031, rel=1e-3)
    assert document["bandwidth_bytes_per_second"]["harmonic_mean"] == pytest.approx(1.07 * GIB, rel=1e-12)


def test_the_report_tells_source_and_headline_and_leaves_out_single_workers(tmp_path: Path) -> None:
    page = report_of(brought_in(tmp_path, text()))
    assert "Summary printed by cudf-merge (imported; not verified by merge_bench)" in page
    assert "Throughput: all bytes ÷ that wall-clock (GiB/s)" in page
    assert "Bandwidth, as printed (GiB/s)" in page
    assert "workers, phases, link: not in the imported text" in page
    assert "one worker sends nothing to others" not in page
    assert "\nLink" not in page


def test_throughput_is_that_of_the_text_where_times_are_rounded_more(tmp_path: Path) -> None:
    walls = (1.0066, 1.0083, 1.0099)
    campaign = brought_in(tmp_path, text(rows=25_000_000, walls=walls))
    found = summarized(campaign)["throughput_bytes_per_second"]["median"]
    assert found == pytest.approx(12.8e9 / walls[1], rel=5e-4)
    assert "10.00 ms" in codes(summarized(campaign))["imported-rounded"]


def test_doubts_become_warnings(tmp_path: Path) -> None:
    noise = "\nbye\nTraceback (most recent call last):\nOSError: gone\n"
    found = codes(summarized(brought_in(tmp_path, text("ucxx", devices="[0]") + noise)))
    assert "but has the data of 16" in found["imported-workers"]
    assert "workers, but has the data of" in found["imported-workers"]
    assert found["imported-error"].endswith("OSError: gone")
    assert "3 lines" in found["imported-lines"]
    assert found["imported-lines"].endswith("line 19: bye")
    assert "closing barrier" in found["imported-definitions"]
    many = brought_in(tmp_path, text(walls=(0.05,) * 2000, bandwidths=(1e9,) * 2000), "many.out")
    assert "has data for 20" in codes(summarized(many))["imported-length"]


def test_a_text_without_doubts_has_no_such_warnings(tmp_path: Path) -> None:
    assert set(codes(summarized(brought_in(tmp_path, text())))) == {
        "imported-definitions",
        "imported-rounded",
        "unverified",
    }


def test_nothing_is_made_of_a_damaged_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        brought_in(tmp_path, text()[:-20])
    assert not (tmp_path / "results").exists()


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^there is no file .*/none\.out$"):
        import_file(tmp_path / "none.out", tmp_path)
    with pytest.raises(UsageError, match=r"^cannot read .*: Is a directory$"):
        import_file(tmp_path, tmp_path)


def test_a_file_name_that_is_no_text_does_no_harm(tmp_path: Path) -> None:
    campaign = brought_in(tmp_path, text(), os.fsdecode(b"run-\xff.out"))
    assert campaign.head.configs[0].name == "run-?"


def test_a_file_too_large_for_a_report_is_not_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "merge.out"
    file.write_text(text())
    os.truncate(file, 1 << 40)
    with pytest.raises(UsageError, match="is larger than 64 MiB"):
        import_file(file, tmp_path)


@pytest.mark.slow
def test_a_text_that_cannot_be_copied_fails_the_import(tmp_path: Path) -> None:
    file, most = tmp_path / "merge.out", 1 << 20
    file.write_text(text() + most * "\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))  # as on a disk that is nearly full
    try:
        with pytest.raises(RunFailed, match=r"cannot copy .*: File too large"):
            import_file(file, tmp_path / "results")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_document_is_plain_json(tmp_path: Path) -> None:
    document = summarized(brought_in(tmp_path, text()))
    assert json.loads(json.dumps(document)) == document
