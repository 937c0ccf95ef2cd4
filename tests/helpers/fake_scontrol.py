"""A program `scontrol` that knows some lists of nodes, and one job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

SCRIPT = """\
#!/bin/sh
case "$*" in
{answers}
*) echo "scontrol: error: Invalid hostlist: $3" >&2; exit 1;;
esac
"""


def put_on_path(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    nodes: Mapping[str, Sequence[str]],
    *,
    job: str = "7",
    shown: str = "",
) -> dict[str, str]:
    """Make `folder` the only one that has programs, and return that as a variable for the environment of a job.

    `nodes`: the names in each list that the program knows, such as ``n[1-2]``. `shown`: what it prints about `job`.
    """
    texts = {f"show hostnames {text}": "".join(f"{name}\n" for name in names) for text, names in nodes.items()}
    if shown:
        texts[f"--details show job {job}"] = shown
    answers = [f"{shlex.quote(words)}) printf %s {shlex.quote(text)};;" for words, text in texts.items()]
    program = folder / "scontrol"
    program.write_text(SCRIPT.format(answers="\n".join(answers)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return {"PATH": str(folder)}
