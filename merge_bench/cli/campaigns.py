"""What commands that make or show campaigns have in common."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import click

from merge_bench.campaign.calling_program import Caller
from merge_bench.errors import say, stdout_is_stderr
from merge_bench.host import other_load
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import FailureLine, GivenOptions
from merge_bench.view.streams import say_log


@contextlib.contextmanager
def _signals_and_log_redirected(log: Path) -> Iterator[None]:
    """Raise signals as errors, and write the output of libraries into `log`, until the block ends."""
    from merge_bench.cluster import scheduler_client, signals

    with signals.raising(), scheduler_client.redirect_libraries(log):
        yield


def this_command() -> Caller:
    """This command as the caller of a campaign, which handles signals and the output of libraries.

    It begins to measure the load of this host, so call it early.
    """
    from merge_bench.cluster import signals

    return Caller(
        tuple(sys.argv), given_options(), signals.raising, _signals_and_log_redirected, other_load.begin_measuring()
    )


def given_options() -> GivenOptions:
    """The options of this command as they were typed, for the records."""
    context = click.get_current_context()
    typed_values, _, _ = context.command.make_parser(context).parse_args(list(context.obj or ()))
    options: GivenOptions = {}
    for key, value in typed_values.items():
        if key in ("named", "baseline"):  # given without an option
            key, value = "config", value[0] if isinstance(value, tuple) and value else value
        if value is True or isinstance(value, str) or (isinstance(value, list) and value):
            options[key] = value
    return options


def failures_of(campaigns: Sequence[Campaign]) -> list[FailureLine]:
    """Every failure in the records of `campaigns`, except failures of launches that were made again."""
    return [
        failure
        for campaign in campaigns
        for failure in (*campaign.failures, *(each for launch in campaign.standing for each in launch.failures))
    ]


def say_failures(failures: Sequence[FailureLine], *, printed: Collection[str] = ()) -> None:
    """Print failures, each with the end of its log, on standard error.

    `printed`: messages on standard output; they are not printed again if both streams go to the same place.
    """
    messages_seen = printed if stdout_is_stderr() else ()
    for failure in failures:
        if not any(failure.message in text for text in messages_seen):
            say(failure.message)
        say_log(failure.log_tail)
