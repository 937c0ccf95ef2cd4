"""How benchmarks run merge_bench: the options that it gets, and what becomes of its document."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import processes
from benchmarks.goal.bench import Bench
from benchmarks.processes import Ended, options, run_merge_bench, surroundings
from merge_bench.errors import RunFailed

CAMPAIGN = Path(__file__).resolve().parents[1] / "data" / "campaigns" / "run"
DOCUMENT = json.loads((CAMPAIGN / "document.json").read_text())
Pretend = Callable[..., list[list[str]]]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pretend:
    """Makes commands end at once with this output; gives the command lines."""
    ran: list[list[str]] = []

    def ending(text: str, status: int = 0, errors: str = "") -> list[list[str]]:
        def run(argv: Sequence[str], environment: Mapping[str, str], stem: Path, limit: float) -> Ended:
            ran.append(list(argv))
            ended = Ended(status, 1.5, False, 0, Path(f"{stem}.out"), Path(f"{stem}.err"))
            ended.output.write_text(text)
            ended.errors.write_text(errors)
            return ended

        monkeypatch.setattr(processes, "run_limited", run)
        return ran

    return ending


def test_options_are_written_as_they_are_typed() -> None:
    words = options(link_rounds=0, chunk="5e6", check_link=True, fresh=False, shuffle=None)
    assert words == ["--link-rounds", "0", "--chunk", "5e6", "--check-link"]


def test_a_run_is_its_document_and_its_records(pretend: Pretend, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    shutil.copy(CAMPAIGN / "records.jsonl", folder)
    ran = pretend(json.dumps({**DOCUMENT, "records": str(folder / "records.jsonl")}))
    found = Bench(tmp_path, seed=7).merge(chunk=1000)
    assert (found.document["verified"], found.seconds, found.folder) == (True, 1.5, folder)
    assert found.campaign.launches
    assert ran[0][-4:] == ["--seed", "7", "--chunk", "1000"]


@pytest.mark.parametrize(
    ("text", "status", "sentence", "exit_status"),
    [
        ("", 2, "status 2: no such option", 3),
        ("", 0, "the program printed no JSON document", 3),
        (json.dumps({"error": {"message": "a worker died"}}), 3, "a worker died", 3),
        (json.dumps({"runs": [{"error": None}, {"error": {"message": "a row was lost"}}]}), 4, "a row was lost", 4),
        (json.dumps({"error": None}), 5, "status 5: no such option", 5),
    ],
)
def test_a_run_that_failed_is_an_error_with_its_status(
    pretend: Pretend, tmp_path: Path, text: str, status: int, sentence: str, exit_status: int
) -> None:
    pretend(text, status, "warning\nno such option\n")
    with pytest.raises(RunFailed, match=sentence) as error:
        run_merge_bench([], surroundings(), tmp_path / "it", 9.0)
    assert error.value.exit_status == exit_status


def test_a_result_that_was_not_verified_is_an_error(pretend: Pretend, tmp_path: Path) -> None:
    pretend(json.dumps({"runs": [{"verified": True}, {"verified": False}], "records": "x"}))
    with pytest.raises(RunFailed, match="was not verified"):
        Bench(tmp_path).merge()


def test_a_run_reaches_test_hosts_from_their_switch(pretend: Pretend, tmp_path: Path) -> None:
    class Hosts:
        hosts_file, ssh_config = Path("hosts"), Path("config")

        def command(self, *words: str) -> list[str]:
            return ["nsenter", *words]

    ran = pretend(json.dumps({"error": None}))
    run_merge_bench(["--chunk", "5"], surroundings(), tmp_path / "it", 9.0, hosts=Hosts())
    assert ran[0][0] == "nsenter"
    assert ran[0][-4:] == ["--hosts", "hosts", "--ssh-config", "config"]


def test_settings_of_this_process_stay_out_where_they_would_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    found: dict[str, Any] = surroundings("UCX")
    assert "UCX_TLS" not in found
    assert found["PYTHONPATH"].split(":")[0] == str(processes.ROOT)
