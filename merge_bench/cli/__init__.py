"""The command line: the group of all commands, and how an error becomes a sentence and an exit status.

A command turns options into a call and returns the exit status, None for 0. It has no logic and imports slow libraries
inside its function. Only the file of the command that runs is imported.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, MutableMapping
from typing import NoReturn

import click

from merge_bench.cli.common import CONTEXT, FullHelpGroup
from merge_bench.config.installation import __version__
from merge_bench.errors import MergeBenchError, UsageError, convert_system_error, print_message
from merge_bench.view.streams import flush_standard_output, send_native_output_to_stderr

_READER_GONE = 141
"""Exit status if the reader of standard output has gone, as a shell has it for a program that SIGPIPE ended."""

_FUNCTIONS = {
    "run": "run.run",
    "check": "run.check_config_file",
    "configs": "run.list_configs",
    "submit": "run.submit_batch_job",
    "transports": "run.show_transports",
    "doctor": "run.examine_hosts",
    "results": "results.list_results",
    "show": "results.show_result",
    "compare": "results.compare_results",
    "history": "results.show_history",
    "predict": "results.predict_merge",
    "import": "results.import_output",
    "export": "results.export_results",
    "report": "results.write_html_report",
    "dashboard": "results.serve_dashboard",
    "serve": "service.serve",
    "jobs": "service.job_commands",
    "tune": "tune.tune",
    "probe": "probe.probe_commands",
    "exec": "exec.measure_command",
    "bisect": "bisect.bisect_releases",
}
"""File and function of each command, by its name."""


class _Commands(MutableMapping[str, click.Command]):
    """The commands by name; the file of a command is imported when the command is looked up."""

    def __init__(self) -> None:
        self._imported: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._imported:
            module, _, function = _FUNCTIONS[name].partition(".")
            self._imported[name] = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        return self._imported[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._imported[name] = command

    def __delitem__(self, name: str) -> None:
        del self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_FUNCTIONS)

    def __len__(self) -> int:
        return len(_FUNCTIONS)


class _CommandGroup(FullHelpGroup):
    """The group of all commands: `run` is the default, and commands return their exit status."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        option = bool(args) and args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")
        if not args or option or args[0].endswith(".cfg"):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> NoReturn:
        send_native_output_to_stderr()
        try:
            status = super().invoke(ctx)
            if not flush_standard_output():
                ctx.exit(_READER_GONE)
        except MergeBenchError as error:
            _exit_with(error)
        except BrokenPipeError:
            flush_standard_output()
            ctx.exit(_READER_GONE)
        except OSError as error:
            _exit_with(convert_system_error(error))
        except ValueError as error:
            from merge_bench.cluster.scheduler_client import unreadable_dask_config_text

            if (sentence := unreadable_dask_config_text(error)) is None:
                raise
            _exit_with(UsageError(sentence))
        ctx.exit(status or 0)


@click.group(name="merge-bench", cls=_CommandGroup, commands=_Commands(), context_settings=CONTEXT)
@click.version_option(__version__, prog_name="merge_bench")
def cli() -> None:
    """Measures, explains and tunes distributed dataframe merges over UCX.

    Without a command, `run` is executed: it launches a cluster on this machine and measures merges on it.
    """


def main() -> None:
    """Run the command line; a user's mistake ends with a message and an exit status, without a traceback."""
    send_native_output_to_stderr()
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.Abort:
        sys.exit(3)
    except click.ClickException as error:
        _exit_with(UsageError(_message_with_suggestions(error)))


def _message_with_suggestions(error: click.ClickException) -> str:
    """Return the message of a click error, with the options or commands of similar names, the most similar first."""
    near = getattr(error, "possibilities", None)
    return f"{error.message.rstrip('.')}; did you mean {' or '.join(near)}?" if near else error.format_message()


def _exit_with(error: MergeBenchError) -> NoReturn:
    """Print an error on standard error, with ``--json`` also as a JSON document, and exit with the error's status."""
    print_message(str(error))
    own_words = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    if "--json" in own_words:
        click.echo(json.dumps({"error": {"code": error.code, "message": str(error), "host": None, "rank": None}}))
    sys.exit(error.exit_status)
