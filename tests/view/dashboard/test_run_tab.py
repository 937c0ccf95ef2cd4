"""The Run tab: the form becomes a request, and the token decides who may send it."""

from __future__ import annotations

import panel as pn
import pytest

from merge_bench.config.shipped import shipped_files
from merge_bench.errors import UsageError
from merge_bench.probe import probes
from merge_bench.view.dashboard.run_tab import RunView
from merge_bench.view.dashboard.runner import Permission, Request, Runner
from merge_bench.view.text import as_html
from tests.view.dashboard.boards import texts


class Recorder(Runner):
    """Starts nothing, and keeps the requests; `ended`: the calls of `stop` and `kill`."""

    def __init__(self) -> None:
        super().__init__("results")
        self.asked: list[Request] = []
        self.ended: list[str] = []

    def start(self, request: Request) -> None:
        if request.chunk == "taken":
            raise UsageError("a run is in progress")
        self.asked.append(request)

    def stop(self) -> None:
        self.ended.append("stop")

    def kill(self) -> None:
        self.ended.append("kill")


@pytest.fixture
def runner() -> Recorder:
    return Recorder()


def test_the_form_becomes_the_request_and_the_command_line(runner: Recorder) -> None:
    form = RunView(runner, Permission())
    form.configs.value, form.fields["chunk"].value, form.fields["workers"].value = ["tcp.cfg"], "2e6", "3"
    form.start.clicks += 1
    assert runner.asked == [Request(configs=("tcp.cfg",), chunk="2e6", workers="3")]
    command = "python -m merge_bench run --config=tcp.cfg --chunk=2e6 --workers=3 --results=results"
    assert command in texts(form.layout)
    form.configs.value, form.fields["blocks"].value, form.engine.value = ["default.cfg", "tcp.cfg"], "6", "duckdb"
    command = "--configs=default.cfg,tcp.cfg --chunk=2e6 --engine=duckdb --workers=3 --blocks=6 --results=results"
    assert f"python -m merge_bench run {command}" in texts(form.layout)


def test_the_kind_of_join_can_be_chosen_and_each_config_says_what_it_does(runner: Recorder) -> None:
    form = RunView(runner, Permission())
    about = {each.name: each.about for each in shipped_files()}
    assert as_html(about["tcp.cfg"]) not in texts(form.layout)
    form.configs.value, form.how.value = ["tcp.cfg"], "left"
    assert as_html(f"tcp.cfg: {about['tcp.cfg']}") in texts(form.layout)
    form.start.clicks += 1
    assert runner.asked == [Request(configs=("tcp.cfg",), chunk="1e6", how="left")]


def test_the_tab_says_how_to_run_a_config_of_ones_own(runner: Recorder) -> None:
    said = texts(RunView(runner, Permission()).layout)
    assert "shipped configs only" in said
    assert "<code>python -m merge_bench run --config FILE.cfg</code>" in said


def test_a_tuning_and_every_network_measurement_can_be_started_with_the_fields_they_take(runner: Recorder) -> None:
    form = RunView(runner, Permission())
    assert set(form.command.options) == {"run", "tune", *(f"probe {name}" for name in probes())}
    form.command.value = "tune"
    form.configs.value = ["tcp.cfg"]
    command = "python -m merge_bench tune tcp.cfg --chunk=1e6 --budget=10m --results=results"
    assert command in texts(form.layout)
    form.configs.value = ["default.cfg", "tcp.cfg"]
    assert "tune begins with one config" in texts(form.layout)
    form.command.value = "probe p2p"
    command = "python -m merge_bench probe p2p --config=default.cfg --config=tcp.cfg --results=results"
    assert command in texts(form.layout)
    assert [name for name, field in form.fields.items() if field.visible] == ["iterations"]
    form.start.clicks += 1
    assert runner.asked == [Request("probe p2p", ("default.cfg", "tcp.cfg"))]


def test_tables_are_merged_on_a_key_with_one_name_or_two(runner: Recorder) -> None:
    form = RunView(runner, Permission())
    keys = ("on", "left_on", "right_on")
    assert not any(form.fields[name].visible for name in keys)
    for name, text in (("left", "orders.parquet"), ("right", "my lines"), ("left_on", "o_key"), ("right_on", "l_key")):
        form.fields[name].value = text
    assert all(form.fields[name].visible for name in keys)
    command = "run --left=orders.parquet '--right=my lines' --left-on=o_key --right-on=l_key --results=results"
    assert as_html(command) in texts(form.layout)
    form.fields["left_on"].value = form.fields["right_on"].value = ""
    form.fields["on"].param.update(value="id,a=b", value_input="id,a=b")  # together, as a browser sends them
    assert "--on=id,a=b --results" in texts(form.layout)


def test_only_with_the_token_runs_are_started_stopped_and_killed(runner: Recorder) -> None:
    form = RunView(runner, Permission(token="secret"))

    def click_all(token: str) -> None:
        form.token.value = token
        for button in (form.start, form.stop, form.kill):
            button.clicks += 1

    for token in ("", "wrong", "secre"):
        click_all(token)
    assert (runner.asked, runner.ended) == ([], [])
    assert "Enter the token" in texts(form.layout)
    click_all("secret")
    assert len(runner.asked) == 1
    assert runner.ended == ["stop", "kill"]


def test_where_runs_are_refused_there_is_no_form_and_clicks_do_nothing(runner: Recorder) -> None:
    form = RunView(runner, Permission(refusal="Not here."))
    assert "Not here." in texts(form.layout)
    assert form.layout.select(pn.widgets.Button) == []
    form.start.clicks += 1
    assert runner.asked == []


def test_what_the_runner_refuses_is_shown(runner: Recorder) -> None:
    form = RunView(runner, Permission())
    form.fields["chunk"].value = "taken"
    form.start.clicks += 1
    assert "a run is in progress" in texts(form.layout)
