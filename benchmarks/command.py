"""What the commands in this folder share: counts as people write them, and one sentence for a user's mistake."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click

from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.units import parse_count

INTERRUPTED = 3
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class Rows(click.ParamType[int]):
    """A count as people write it."""

    name = "ROWS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """``25e6`` → 25000000."""
        try:
            return value if isinstance(value, int) else parse_count(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def run(command: click.Command, name: str) -> None:
    """Run `command` and leave with its status: a signal is a KeyboardInterrupt, a mistake a sentence, no traceback."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        command(standalone_mode=False)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.ClickException as error:
        click.echo(f"{name}: {error.format_message()}", err=True)
        sys.exit(UsageError.exit_status)
    except MergeBenchError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(error.exit_status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
