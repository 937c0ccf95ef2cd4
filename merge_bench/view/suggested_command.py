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
from merge_bench.cluster.launchers import launchers_by_name
from merge_bench.config.options import BY_KEY
from merge_bench.records.campaign import JOB, Campaign, is_read_on_another_machine
from merge_bench.records.schema import GivenOptions

_PYTHON, _SCRIPT = "python", "merge-bench"
_PROGRAM = f"{_PYTHON} -m merge_bench"
_MEASURING_COMMANDS = ("", "run", "tune", "exec")
WHEN_QUIET = "on a quiet host: add --wait-for-quiet 5m"


@dataclass(frozen=True)
class SuggestedCommand:
    """A command of this program that the reader is advised to type next.

    `words`, `options`: the command line; `does`: what the command does, as a phrase; `reports`: whether it writes the
    report, which does not suggest it; `note`: a sentence about what is undecided; `command_words`: a command of the
    user that it runs, which follows all options; `needs_quiet`: whether a busy host would distort what it shows.
    """

    words: tuple[str, ...]
    does: str
    options: GivenOptions = field(default_factory=dict)
    reports: bool = False
    note: str = ""
    program: str = _PROGRAM
    command_words: tuple[str, ...] = ()
    needs_quiet: bool = True

    @property
    def command(self) -> str:
        """The suggested command line, for a shell."""
        theirs = ("--", *self.command_words) if self.command_words else ()
        return f"{self.program} {shlex.join([*self.words, *_options_as_arguments(self.options), *theirs])}".rstrip()

    def with_program_as_typed(self) -> SuggestedCommand:
        """The same command, beginning with the program as the user typed it, such as ``python -m merge_bench``."""
        return replace(self, program=typed_program_text(ProgramInvocation.of_this_process()))

    def quiet_host_advice(self, campaign: Campaign) -> str:
        """Advice to add ``--wait-for-quiet`` if this command measures and `campaign` ran on a busy host; else empty."""
        may_wait = self.needs_quiet and "wait_for_quiet" not in self.options
        measures = may_wait and next(iter(self.words), "") in _MEASURING_COMMANDS
        return WHEN_QUIET if measures and busy_host_warnings(campaign) and can_wait_for_quiet_host(campaign) else ""

    def with_service_advice(self, campaign: Campaign) -> SuggestedCommand:
        """The same command; if a service for clients made `campaign`, with a phrase that says where to type it."""
        if (
            not is_read_on_another_machine(campaign.head.environment_variable(JOB))
            or self.reports
            or "service" in self.options
        ):
            return self
        if self.words and self.words[0] in ("doctor", "transports", "history"):
            return replace(self, does=f"{self.does}; type it on the service's machine")
        if BY_KEY["service"].environment_variable in os.environ:
            return self
        return replace(self, does=f"{self.does}; a service made this result, so add --service with its address")


def typed_command_unless_in_job(suggestion: SuggestedCommand | None) -> SuggestedCommand | None:
    """`suggestion` with the program as the user typed it; None in a job of a service, whose client shows it instead."""
    return None if suggestion is None or JOB in os.environ else suggestion.with_program_as_typed()


def service_machine_suffix() -> str:
    """The text ``, on the service's machine``, for file names in the output of a service's job; empty elsewhere."""
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


def typed_program_text(invocation: ProgramInvocation) -> str:
    """The program as the user typed it: ``merge-bench`` or ``python -m merge_bench``, with a path where needed."""
    if invocation.script.name == _SCRIPT:
        on_path = shutil.which(_SCRIPT)
        by_name = on_path is not None and invocation.script.exists() and Path(on_path).samefile(invocation.script)
        return _SCRIPT if by_name else _quoted_path_for_shell(invocation.script)
    word = invocation.word
    on_path = shutil.which(_PYTHON)
    if on_path is not None and Path(on_path).parent.resolve() == invocation.python.parent.resolve():
        return _PROGRAM
    python = word if word and "/" not in word and shutil.which(word) else _quoted_path_for_shell(invocation.python)
    return python + _PROGRAM.removeprefix(_PYTHON)


def _quoted_path_for_shell(path: Path) -> str:
    """Quote a path for a shell, relative to the current folder if the path lies in there."""
    inside = path.is_relative_to(Path.cwd()) and len(path.relative_to(Path.cwd()).parts) > 1
    return shlex.quote(str(path.relative_to(Path.cwd()) if inside else path))


def can_wait_for_quiet_host(campaign: Campaign) -> bool:
    """Whether a campaign's workers ran on the host of the command, which can wait until that host is quiet."""
    return all(kind.starts_here for kind in launchers_of_campaign(campaign))


def launchers_of_campaign(campaign: Campaign) -> list[LauncherKind]:
    """The launchers that started the launches of a campaign."""
    names = {launch.line.cluster.launcher for launch in campaign.launches if launch.line is not None}
    return [launchers_by_name()[name] for name in names & set(launchers_by_name())]


def _options_as_arguments(options: GivenOptions) -> list[str]:
    """Turn options into arguments of a command line; an option with several values is repeated."""
    words: list[str] = []
    for key, value in options.items():
        name = f"--{key.replace('_', '-')}"
        words += [name] if value is True else []
        for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            words += [name, text]
    return words
