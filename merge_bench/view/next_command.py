"""A command of the program that is worth typing next, and how it is written here."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from merge_bench.analysis.host_load import busy_warnings
from merge_bench.cluster.base import LauncherKind
from merge_bench.cluster.launchers import launchers
from merge_bench.config.options import BY_KEY
from merge_bench.records.campaign import JOB, Campaign, read_elsewhere
from merge_bench.records.schema import GivenOptions

_PYTHON, _SCRIPT = "python", "merge-bench"
_PROGRAM = f"{_PYTHON} -m merge_bench"
_MEASURING = ("", "run", "tune")
WHEN_QUIET = "on a quiet host: add --wait-for-quiet 5m"


@dataclass(frozen=True)
class NextStep:
    """A command of the program, its words and options, and what it does.

    `reports`: it writes the report, which does not name it itself; `note`: what it leaves open, a sentence.
    """

    words: tuple[str, ...]
    does: str
    options: GivenOptions = field(default_factory=dict)
    reports: bool = False
    note: str = ""
    program: str = _PROGRAM

    @property
    def command(self) -> str:
        """The command line."""
        return f"{self.program} {shlex.join([*self.words, *_as_words(self.options)])}".rstrip()

    def here(self) -> NextStep:
        """The same, beginning as this command was typed."""
        return replace(self, program=_as_typed())

    def quietly(self, campaign: Campaign) -> str:
        """What to add where this measures, if `campaign` was made on a busy host and did not wait; else empty."""
        measures = next(iter(self.words), "") in _MEASURING and "wait_for_quiet" not in self.options
        return WHEN_QUIET if measures and busy_warnings(campaign) and can_wait(campaign) else ""

    def after(self, campaign: Campaign) -> NextStep:
        """This step, with where to type it if a service for clients made `campaign`."""
        if not read_elsewhere(campaign.head.variable(JOB)) or self.reports or "service" in self.options:
            return self
        if self.words and self.words[0] in ("doctor", "transports", "history"):
            return replace(self, does=f"{self.does}; type it on the service's machine")
        if BY_KEY["service"].variable in os.environ:
            return self
        return replace(self, does=f"{self.does}; a service made this result, so add --service with its address")


def typed(step: NextStep | None) -> NextStep | None:
    """`NextStep.here`; None in a job of a service, whose client or page shows its own."""
    return None if step is None or JOB in os.environ else step.here()


def elsewhere() -> str:
    """What follows the name of a file here, in the output of a job that its client reads on another machine."""
    return ", on the service's machine" if read_elsewhere(os.environ.get(JOB)) else ""


def _as_typed() -> str:
    """``merge-bench``, or a Python with ``-m merge_bench``: by name if that is found, else by its shorter path."""
    script = Path(sys.argv[0])
    if script.name == _SCRIPT:
        on_path = shutil.which(_SCRIPT)
        by_name = on_path is not None and script.exists() and Path(on_path).samefile(script)
        return _SCRIPT if by_name else _short(script)
    typed, own = sys.orig_argv[0], Path(sys.executable)
    on_path = shutil.which(_PYTHON)
    if on_path is not None and Path(on_path).parent.resolve() == own.parent.resolve():
        return _PROGRAM
    python = typed if typed and "/" not in typed and shutil.which(typed) else _short(own)
    return python + _PROGRAM.removeprefix(_PYTHON)


def _short(path: Path) -> str:
    """A path as a word of a command, from the current folder if it lies there."""
    here = Path.cwd()
    inside = path.is_relative_to(here) and len(path.relative_to(here).parts) > 1
    return shlex.quote(str(path.relative_to(here) if inside else path))


def can_wait(campaign: Campaign) -> bool:
    """Whether all launchers of a campaign start workers on this host, whose load can be waited for."""
    return all(kind.starts_here for kind in launchers_of(campaign))


def launchers_of(campaign: Campaign) -> list[LauncherKind]:
    """The launchers with which a campaign's launches were made."""
    names = {launch.line.cluster.launcher for launch in campaign.launches if launch.line is not None}
    return [launchers()[name] for name in names & set(launchers())]


def _as_words(options: GivenOptions) -> list[str]:
    """A command line with these options; of a repeated one with each of its values."""
    words: list[str] = []
    for key, value in options.items():
        name = f"--{key.replace('_', '-')}"
        words += [name] if value is True else []
        for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            words += [name, text]
    return words
