"""What commands that make or show campaigns have in common."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from merge_bench.campaign.calling_program import Caller
from merge_bench.errors import one_stream, say
from merge_bench.host import other_load
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import FailureLine
from merge_bench.view.messages import say_log


@contextlib.contextmanager
def _surround(log: Path) -> Iterator[None]:
    from merge_bench.cluster import scheduler_client, signals

    with signals.raising(), scheduler_client.redirect_libraries(log):
        yield


def this_command() -> Caller:
    """This command as the caller of a campaign: it owns its process, so it handles signals and library output.

    A look at the load of this host begins, so call it early.
    """
    from merge_bench.cluster import signals

    return Caller(tuple(sys.argv), signals.raising, _surround, other_load.begin())


def failures_of(campaigns: Sequence[Campaign]) -> list[FailureLine]:
    """Every failure in the records, without those of launches that were made again."""
    return [
        failure
        for campaign in campaigns
        for failure in (*campaign.failures, *(each for launch in campaign.standing for each in launch.failures))
    ]


def say_failures(failures: Sequence[FailureLine], *, printed: Collection[str] = ()) -> None:
    """Print failures, each with the end of its log, on standard error.

    `printed`: messages that standard output has; if both go to the same place, it does not get them again.
    """
    seen = printed if one_stream() else ()
    for failure in failures:
        if not any(failure.message in text for text in seen):
            say(failure.message)
        say_log(failure.log_tail)
