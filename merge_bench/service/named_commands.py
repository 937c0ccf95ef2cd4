"""Commands that an operator names (`serve --command NAME=COMMAND`). Jobs run these by name, and never one of their own.

The operator's text is split into words as a shell does, but no shell reads it. A job is stored with the name alone, and
gets the words when it starts: what the operator takes back is not run.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from merge_bench.command.run_command import find_program_path
from merge_bench.errors import UsageError
from merge_bench.service.store import NAME, NAME_RULE

EXEC = "exec"
"""The command whose jobs run a named command."""
END_OF_OPTIONS = "--"
"""The word before a command's own words."""
NAMED_OPTION = "--named="


def parse_named_commands(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse the values of ``serve --command`` to the words of each command by its name; raises UsageError."""
    commands: dict[str, list[str]] = {}
    for text in texts:
        name, equals, line = text.partition("=")
        if not equals or not re.fullmatch(NAME, name) or not line.isprintable():
            raise UsageError(f"--command {text!r}: write NAME=COMMAND in one line; a name has {NAME_RULE}")
        if name in commands:
            raise UsageError(f"--command: two commands have the name {name}; give each a name of its own")
        try:
            commands[name] = shlex.split(line)
        except ValueError as error:
            reason = str(error)
            raise UsageError(f"--command {name}: {reason[:1].lower()}{reason[1:]} in {line}") from None
        if not commands[name]:
            raise UsageError(f"--command {name}: the command is empty; write {name}=COMMAND")
    return commands


def check_command_programs(commands: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError for the first command whose program a job would not find."""
    for name, argv in commands.items():
        program = argv[0]
        if "/" in program and not os.path.isabs(program):
            raise UsageError(f"--command {name}: give the whole path of {program}; each job runs in its own folder")
        if find_program_path(argv, os.environ) is None:
            raise UsageError(f"--command {name}: there is no program {program}")


def find_named_command(name: object, commands: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The words of the command named `name`; raises UsageError, which lists all names, if there is none."""
    if isinstance(name, str) and name in commands:
        return commands[name]
    if not commands:
        raise UsageError("this service has no commands for exec; its operator names them with serve --command")
    raise UsageError(f"named must be one of this service's commands: {', '.join(sorted(commands))}")


def append_named_command(job_arguments: Sequence[str], commands: Mapping[str, Sequence[str]]) -> list[str]:
    """Append the words of a job's named command to its arguments; raises UsageError if the name was removed."""
    if list(job_arguments[:1]) != [EXEC]:
        return list(job_arguments)
    name = next(word.removeprefix(NAMED_OPTION) for word in job_arguments if word.startswith(NAMED_OPTION))
    if name not in commands:
        raise UsageError(f"the operator of this service has removed the command {name}")
    return [*job_arguments, END_OF_OPTIONS, *commands[name]]
