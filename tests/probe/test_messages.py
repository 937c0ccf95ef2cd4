"""Messages of ranks arrive whatever they hold, and whatever the rank's locale is."""

from __future__ import annotations

import msgspec
import pytest

from merge_bench.probe.ranks import messages


@pytest.mark.parametrize("text", ["café", "a folder \udcff that is no UTF-8", "two\nlines"])
def test_any_text_arrives_as_one_line_of_ascii(capsys: pytest.CaptureFixture[str], text: str) -> None:
    sent = messages.RankError(1, "node1", None, text)
    messages.send_to_driver(sent)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isascii()
    assert messages.parse_message(line) == sent


def test_a_message_of_another_form_is_no_output_of_a_tool() -> None:
    with pytest.raises(msgspec.ValidationError):
        messages.parse_message('{"merge_bench": "rankerror", "rank": "one"}')


@pytest.mark.parametrize("line", ["# OSU MPI Latency Test", '{"merge_bench": "err', '{"other": 1}'])
def test_other_lines_are_no_messages(line: str) -> None:
    assert messages.parse_message(line) is None
