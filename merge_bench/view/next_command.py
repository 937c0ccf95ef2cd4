"""A command of the program that is worth typing next, and how it is written on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from merge_bench.analysis.diagnostics import busy_host_warnings
from merge_bench.cluster.base import LauncherKind
from merge_bench.cluster.launchers import launchers
from merge_bench.config.options import BY_KEY
from merge_bench.records.campaign import JOB, Campaign, is_read_on_another_machine
from merge_bench.records.schema import GivenOptions

_PYTHON, _SCRIPT = "python", "merge-bench"
_PROGRAM = f"{_PYTHON} -m merge_bench"
_MEASURING_COMMANDS = ("", "run", "tune", "exec")
WHEN_QUIET = "on a quiet host: add --wait-for-quiet 5m"


@dataclass(frozen=True)
class NextStep:
    """A command of the program, as words and options; `does`: what it does, as a phrase.

    `reports`: whether it writes the report, which does not name this command; `note`: a sentence about what is open;
    `command_words`: of a person's command that it runs, which follow all options.
    """

    words: tuple[str, ...]
    does: str
    options: GivenOptions = field(default_factory=dict)
    reports: bool = False
    note: str = ""
    program: str = _PROGRAM
    command_words: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command line, for a shell."""
        theirs = ("--", *self.command_words) if self.command_words else ()
        return f"{self.program} {shlex.join([*self.words, *_option_words(self.options), *theirs])}".rstrip()

    def as_typed(self) -> NextStep:
        """The same command, with the program as the user typed it to start this process."""
        return replace(self, program=program_as_typed(ProgramInvocation.of_this_process()))

    def quiet_host_advice(self, campaign: Campaign) -> str:
        """Advice to add ``--wait-for-quiet`` if this command measures and `campaign` ran on a busy host; else empty."""
        measures = next(iter(self.words), "") in _MEASURING_COMMANDS and "wait_for_quiet" not in self.options
        return WHEN_QUIET if measures and busy_host_warnings(campaign) and can_wait_for_quiet(campaign) else ""

    def with_service_advice(self, campaign: Campaign) -> NextStep:
        """The same command; if a service for clients made `campaign`, with a phrase that says where to type it."""
        if (
            not is_read_on_another_machine(campaign.head.environment_variable(JOB))
            or self.reports
            or "service" in self.options
        ):
            return self
        if self.words and self.words[0] in ("doctor", "transports", "history"):
            return replace(self, does=f"{self.does}; type it on the service's machine")
        if BY_KEY["service"].variable in os.environ:
            return self
        return replace(self, does=f"{self.does}; a service made this result, so add --service with its address")


def step_as_typed(step: NextStep | None) -> NextStep | None:
    """`step` with the program as the user typed it; None in a job of a service, whose client or page shows it."""
    return None if step is None or JOB in os.environ else step.as_typed()


def service_machine_note() -> str:
    """``, on the service's machine``, to follow the name of a file in the output of a service's job; else empty."""
    return ", on the service's machine" if is_read_on_another_machine(os.environ.get(JOB)) else ""


@dataclass(frozen=True)
class ProgramInvocation:
    """How a program was started: its `script`, the first `word` that was typed, and the `python` that runs it."""

    script: Path
    word: str
    python: Path

    @classmethod
    def of_this_process(cls) -> ProgramInvocation:
        return cls(Path(sys.argv[0]), sys.orig_argv[0], Path(sys.executable))


def program_as_typed(started: ProgramInvocation) -> str:
    """The program as the user typed it: ``merge-bench`` or ``python -m merge_bench``, with a path where needed."""
    if started.script.name == _SCRIPT:
        on_path = shutil.which(_SCRIPT)
        by_name = on_path is not None and started.script.exists() and Path(on_path).samefile(started.script)
        return _SCRIPT if by_name else _shell_path(started.script)
    word = started.word
    on_path = shutil.which(_PYTHON)
    if on_path is not None and Path(on_path).parent.resolve() == started.python.parent.resolve():
        return _PROGRAM
    python = word if word and "/" not in word and shutil.which(word) else _shell_path(started.python)
    return python + _PROGRAM.removeprefix(_PYTHON)


def _shell_path(path: Path) -> str:
    """Quote a path for a shell, relative to the current folder if the path lies in there."""
    inside = path.is_relative_to(Path.cwd()) and len(path.relative_to(Path.cwd()).parts) > 1
    return shlex.quote(str(path.relative_to(Path.cwd()) if inside else path))


def can_wait_for_quiet(campaign: Campaign) -> bool:
    """Whether a campaign's workers ran on the host of the command, which can wait until that host is quiet."""
    return all(kind.starts_here for kind in launchers_of_campaign(campaign))


def launchers_of_campaign(campaign: Campaign) -> list[LauncherKind]:
    """The launchers that started the launches of a campaign."""
    names = {launch.line.cluster.launcher for launch in campaign.launches if launch.line is not None}
    return [launchers()[name] for name in names & set(launchers())]


def _option_words(options: GivenOptions) -> list[str]:
    """Options as words of a command line; an option with several values is repeated."""
    words: list[str] = []
    for key, value in options.items():
        name = f"--{key.replace('_', '-')}"
        words += [name] if value is True else []
        for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            words += [name, text]
    return words
