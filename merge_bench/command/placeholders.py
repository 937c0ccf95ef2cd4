"""The words of a command under a config: placeholders are replaced, and nothing else is changed.

``{x}`` and ``{export}`` name the config's variables for mpirun and srun, which take the values from their environment:
values are in no command line, and may contain commas.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.errors import WarningMessage

X, EXPORT, CONFIG, LAUNCH, WORK_FOLDER = "{x}", "{export}", "{config}", "{launch}", "{workdir}"
STAY_HERE = "settings-stay-here"
_PLACEHOLDER = re.compile("|".join(map(re.escape, (X, EXPORT, CONFIG, LAUNCH, WORK_FOLDER))))
_STARTERS = re.compile(r"(?:^|[\s/;&|(])(mpirun|mpiexec|mpiexec\.hydra|srun|ssh)(?:\.\w+)?(?=$|\s)")


@dataclass(frozen=True)
class PlaceholderValues:
    """The values of the placeholders in a command's words in one launch.

    `variables`: names of the config's variables; `launch`: the number of the launch; `work_folder`: empty at its start
    and removed after it, None where no word needs one.
    """

    config: str
    variables: Sequence[str]
    launch: int
    work_folder: str | None = None


def needs_work_folder(words: Sequence[str]) -> bool:
    """Whether a word has the placeholder ``{workdir}``."""
    return any(WORK_FOLDER in word for word in words)


def replace_placeholders(words: Sequence[str], values: PlaceholderValues) -> list[str]:
    """The words of a command in one launch.

    A word ``{x}`` becomes two words for each variable, ``-x NAME``; within a longer word, as in the line of a shell, it
    becomes the same with blanks. Without variables, the words ``{x}`` and ``{export}`` are left out.
    """
    words_of_word = {
        X: [word for name in values.variables for word in ("-x", name)],
        EXPORT: _srun_export_words(values),
    }
    texts = {
        **{placeholder: " ".join(several) for placeholder, several in words_of_word.items()},
        CONFIG: values.config,
        LAUNCH: str(values.launch),
        WORK_FOLDER: values.work_folder or WORK_FOLDER,
    }
    replaced: list[str] = []
    for word in words:
        if word in words_of_word:
            replaced += words_of_word[word]
        else:
            replaced.append(_PLACEHOLDER.sub(lambda match: texts[match[0]], word))
    return replaced


def _srun_export_words(values: PlaceholderValues) -> list[str]:
    return [f"--export={','.join(('ALL', *values.variables))}"] if values.variables else []


def unforwarded_settings_warning(
    words: Sequence[str], config: str, variables: Mapping[str, str]
) -> WarningMessage | None:
    """A warning if a command starts processes on other hosts and nothing gives them the config's variables."""
    starter = _STARTERS.search(" ".join(words))
    if starter is None or not variables or any(placeholder in word for word in words for placeholder in (X, EXPORT)):
        return None
    program = os.path.basename(starter[1])
    what = f"processes that {program} starts on other hosts do not get the {len(variables)} variables of {config}"
    if len(variables) == 1:
        what = f"processes that {program} starts on other hosts do not get {next(iter(variables))} of {config}"
    remedies = {
        "srun": "put {export} after srun, which becomes --export=ALL and the names of the variables",
        "ssh": "set the variables in the command that ssh runs, or use mpirun {x} or srun {export}",
    }
    remedy = f"put {{x}} after {program}, which becomes -x NAME for each variable"
    return WarningMessage(STAY_HERE, what, remedies.get(program, remedy))
