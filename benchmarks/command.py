"""What the commands in this folder share: options, files, tables, and how they end."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click
from msgspec import to_builtins

from benchmarks.processes import adopt_orphans
from merge_bench.campaign.run_campaign import git_state
from merge_bench.cli.common import CONTEXT as CONTEXT
from merge_bench.cli.common import ParsedValue
from merge_bench.config.files import replace_file
from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.host import machine
from merge_bench.units import parse_count
from merge_bench.view import markdown
from merge_bench.view.content import columns_from_rows
from merge_bench.view.terminal import print_page_at_exit

ROOT = Path(__file__).resolve().parents[1]
INTERRUPTED = 3
T = TypeVar("T")
ROWS = ParsedValue("ROWS", parse_count)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listed(name: str, parse: Callable[[str], object]) -> ParsedValue:
    """The type of an option that takes several values with commas between them."""
    return ParsedValue(f"{name}[,{name}]", lambda text: [parse(word.strip()) for word in text.split(",")])


NAMES = listed("NAME", str)


def option(name: str, kind: Any, default: object, text: str, **more: Any) -> Callable[[Any], Any]:
    """A click option of the type `kind`; its help is `text` and the default."""
    return click.option(name, type=kind, default=default, show_default=default is not None, help=text, **more)


def _in_a_folder(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and not path.resolve().parent.is_dir():
        raise UsageError(f"--output: the folder {path.resolve().parent} does not exist")
    return path


FILE = click.Path(path_type=Path, dir_okay=False)
OUTPUT = option("--output", FILE, None, "Write the results to this file.", callback=_in_a_folder, metavar="FILE.json")
SHOW = option("--show", FILE, None, "Show these results again, without measuring.", metavar="FILE.json")
FOLDER = click.Path(path_type=Path)
SEED = option("--seed", click.IntRange(0), 0, "Seed of the tables and of the order of launches.")


def time_limit(seconds: float) -> Callable[[Any], Any]:
    """The option ``--time-limit``, by default so many seconds."""
    return option("--time-limit", click.FloatRange(1), seconds, "Time limit of one run in seconds.")


def run(command: click.Command, name: str) -> None:
    """Run `command` with the words of this process, and exit with its status; a signal raises KeyboardInterrupt."""
    adopt_orphans()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    sys.exit(exit_status(command, name, sys.argv[1:]))


def exit_status(command: click.Command, name: str, words: Sequence[str]) -> int:
    """Run `command` with the options `words`; a user's mistake prints one sentence and no traceback."""
    try:
        status: int | None = command.main(words, standalone_mode=False)
    except click.ClickException as error:
        failed: MergeBenchError = UsageError(error.format_message())
    except MergeBenchError as error:
        failed = error
    else:
        return status or 0
    click.echo(f"{name}: {failed}", err=True)
    return failed.exit_status


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def until_interrupted(work: Callable[[], object], left: str = "the table shows what was measured so far") -> int:
    """Do `work`; gives the exit status, which is 0 unless a signal interrupted it; `left`: what there is then."""
    try:
        work()
    except KeyboardInterrupt:
        say(f"interrupted: {left}")
        return INTERRUPTED
    return 0


def say(line: str) -> None:
    """Print a line of progress to standard error."""
    click.echo(line, err=True)


def sentence(error: Exception) -> str:
    """What went wrong, for a table: the message of an expected error, with its type for any other."""
    return str(error) if isinstance(error, MergeBenchError) else f"{type(error).__name__}: {error}"


def chosen(names: Sequence[str] | None, known: Collection[str], option: str = "--only") -> set[str]:
    """The names given to `option`, or all.

    Raises
    ------
    UsageError
        If one of them is not known.
    """
    for name in names or ():
        if name not in known:
            raise UsageError(f"{option} {name}: unknown name; choose from {', '.join(known)}")
    return set(names or known)


def shuffled(items: Sequence[T], seed: int, block: int) -> list[T]:
    """The order of a block: the same for the same seed."""
    order = list(items)
    random.Random(f"{seed}/{block}").shuffle(order)
    return order


def head(schema: int, **more: Any) -> dict[str, Any]:
    """The first fields of a document: what was run, when, from which sources, and on which machine."""
    return {
        "schema": schema,
        "argv": sys.argv[1:],
        "time": time.time(),
        "git": to_builtins(git_state()),
        "versions": machine.installed_package_versions(),
        "hardware": to_builtins(machine.describe_hardware()),
        "load_average": os.getloadavg(),
        **more,
    }


def write(path: Path | None, document: Mapping[str, Any] | str) -> None:
    """Replace the file at once, so that it is never half written. Does nothing without a path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (document if isinstance(document, str) else json.dumps(document, indent=1)) + "\n"
        with replace_file(path) as stream:
            stream.write(text.encode())


def stored_table(
    title: str, place: int, about: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> str:
    """A table as a file of `results/curated/` in TOML, with the machine, the date, the commit and this command.

    `place`: its position on the page of measurements.
    """

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    def list_of(values: Sequence[str]) -> str:
        return f"[{', '.join(map(text, values))}]"

    hardware, git = machine.describe_hardware(), git_state()
    commit = "" if git is None or git.commit is None else git.commit[:8] + (" with local changes" if git.dirty else "")
    program = Path(sys.argv[0]).stem
    lines = [
        f"title = {text(title)}",
        f"place = {place}",
        f"command = {text(' '.join(['python -m', f'benchmarks.{program}', *sys.argv[1:]]))}",
        f"machine = {text(f'{hardware.cpu_model}, {hardware.cores} cores, load average {os.getloadavg()[0]:.1f}')}",
        f"when = {text(time.strftime('%-d %B %Y', time.gmtime()))}",
        *([f"commit = {text(commit)}"] if commit else []),
        f"about = {text(about)}",
        f"columns = {list_of(columns)}",
        "rows = [",
        *(f"    {list_of(row)}," for row in rows),
        "]",
        *([f"notes = {list_of(notes)}"] if notes else []),
    ]
    return "\n".join(lines)


def read(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises
    ------
    UsageError
        If the file cannot be read or holds no JSON object.
    """
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> UsageError:
    """The error for a file that cannot be shown or resumed."""
    return UsageError(f"{path} contains no results of this command: {type(error).__name__}: {error}")


def new_folder(parent: Path, kind: str) -> Path:
    """Make ``<kind>-<utc>`` in `parent`, with a number behind it if another process has just taken the name."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in itertools.count(1):
        folder = parent / f"{kind}-{stamp}{f'-{number}' if number > 1 else ''}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], text: Collection[int] = (0,), *, markup: bool = False
) -> str:
    """A table in Markdown; `text`: the columns that are aligned to the left; `markup`: the cells are Markdown."""
    return (
        "\n".join(markdown.markdown_table_lines(columns_from_rows(headings, rows, text), are_markdown=markup))
        if rows
        else ""
    )


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], text: Collection[int] = (0,)) -> str:
    """A table as plain text; `text`: the columns that are aligned to the left."""
    with print_page_at_exit(written := io.StringIO()) as page:
        page.add_table(*columns_from_rows(headings, rows, text))
    return written.getvalue().rstrip("\n")
