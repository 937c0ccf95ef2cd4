"""One line: tolerant when read, strict when validated."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from merge_bench.records import schema as s
from merge_bench.records.reader import KINDS, decode_record
from merge_bench.records.writer import encode_record
from tests.helpers.strict_records import validate
from tests.helpers.synthetic_campaigns import Script, iteration, plan, write_campaign

LINES = list(typing.get_args(s.Record))


def as_dict(record: s.Record) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_record(record))
    return found


@pytest.fixture
def line() -> dict[str, Any]:
    return as_dict(iteration(Script(), 0, 0.1))


def test_every_written_line_is_strictly_valid(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(), Script(index=1, plan_index=1, plan=plan(exchange="dask")))
    lines = (folder / "records.jsonl").read_bytes().splitlines()
    kinds = {validate(line).__struct_config__.tag for line in lines}
    assert kinds == set(KINDS) - {"warning", "failure", "probe", "config", "tune", "timeline", "power", "extension"}


def test_every_line_has_schema_kind_and_time(line: dict[str, Any]) -> None:
    assert line["schema"] == 1
    assert line["kind"] == "iteration"
    assert 1.7e9 < line["time"] < 1e10


def test_pairs_are_written_with_the_names_from_and_to(line: dict[str, Any]) -> None:
    assert line["pairs"][0] == {"from": 0, "to": 1, "bytes": 12_000_000, "seconds": 0.03}


def test_unknown_fields_are_read_over_and_found_by_validate(line: dict[str, Any]) -> None:
    line["colour"] = 1
    line["workers"][1]["phases_seconds"]["jion"] = 2
    text = json.dumps(line)
    record = decode_record(text)
    assert isinstance(record, s.IterationLine)
    assert record.workers[1].rank == 1
    with pytest.raises(ValueError, match=r"unknown fields: colour, workers\.1\.phases_seconds\.jion"):
        validate(text)


def test_free_form_fields_may_hold_anything() -> None:
    surroundings = {"host": "a", "extra": [1, {"x": None}]}
    line = s.CampaignLine(
        campaign_id="x", argv=[], version="0", configs=[], plans=[], runs=[], surroundings=surroundings
    )
    record = validate(msgspec.json.encode(line))
    assert isinstance(record, s.CampaignLine)
    assert record.surroundings == surroundings


def test_facts_that_a_machine_does_not_tell_are_none() -> None:
    worker = json.loads(msgspec.json.encode(s.Worker(rank=0, host="a", pid=1, name="w")))
    worker |= {"ucx": {"version": "1.21.0"}, "hardware": {"gpus": [{"name": "H200"}]}}
    found = msgspec.convert(worker, s.Worker)
    assert (found.ucx.version, found.ucx.origin, found.ucx.config) == ("1.21.0", None, {})
    assert (found.hardware.cores, found.hardware.infiniband) == (None, None)
    assert [gpu.name for gpu in found.hardware.gpus or ()] == ["H200"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("wall_seconds", -1.0), ("wall_seconds", None), ("wall_seconds", "0.1"), ("index", 1.5), ("workers", {})],
)
def test_a_wrong_value_is_named(line: dict[str, Any], field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        validate(json.dumps(line | {field: value}))


def test_validate_wants_this_schema(line: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="schema 2 is not 1"):
        validate(json.dumps(line | {"schema": 2}))


def test_a_nan_is_not_written_where_a_number_has_to_be() -> None:
    with pytest.raises(ValueError, match="wall_seconds"):
        encode_record(s.IterationLine(launch=0, index=0, wall_seconds=float("nan")))


def test_what_was_not_measured_is_null() -> None:
    alone = as_dict(
        s.IterationLine(launch=0, index=0, wall_seconds=1.0, workers=[s.WorkerIteration(rank=0, seconds=1)])
    )
    measured = ("phases_seconds", "overlap_seconds", "sent_bytes", "flight_seconds", "received_rows", "result_rows")
    assert [alone["workers"][0][name] for name in measured] == [None] * len(measured)


def test_a_line_from_before_cpu_seconds_were_counted_reads_as_not_measured() -> None:
    worker = '{"rank":0,"seconds":1.0}'
    read = decode_record(
        '{"kind":"iteration","schema":1,"time":1.0,"launch":0,"index":0,"wall_seconds":1.0,"workers":[' + worker + "]}"
    )
    assert isinstance(read, s.IterationLine)
    assert read.workers[0].cpu_seconds is None


def test_the_known_kinds_are_those_that_can_be_decoded() -> None:
    assert frozenset(line.__struct_config__.tag for line in LINES) == KINDS


def test_a_description_of_another_form_counts_as_missing(tmp_path: Path) -> None:
    lines = (write_campaign(tmp_path) / "records.jsonl").read_text().splitlines()
    line = next(found for found in map(json.loads, lines) if found["kind"] == "launch")
    worker = {name: value for name, value in line["workers"][0].items() if name not in ("ucx", "hardware")}
    described = {**worker, "ucx": {"lanes": {"intra-node": ["sysv"]}}, "hardware": {"cores": "many"}}
    found = decode_record(json.dumps({**line, "workers": [described]}))
    assert found == decode_record(json.dumps({**line, "workers": [worker]}))
    with pytest.raises(ValueError, match="rank"):
        decode_record(json.dumps({**line, "workers": [{**described, "rank": "first"}]}))
