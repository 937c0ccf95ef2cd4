"""Where this package is imported from: a checkout of its repository, or an environment that it was installed into."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
STACKS = ("cpu", "cu12", "cu13")


def checkout() -> Path | None:
    """The repository's folder, if the package is used from one; None if it was installed without it."""
    root = PACKAGE.parent
    return root if (root / "run-cluster.sh").is_file() else None


def how_to_set_up(stack: str | None = None, *, anew: bool = False) -> str:
    """What to type to get the packages that a run needs.

    `stack`: one of `STACKS`, by default any. `anew`: for an environment that is spoilt.
    """
    if checkout() is None:
        command = f"pip install 'merge-bench[{stack or '|'.join(STACKS)}]'"
        return f"python -m venv NEW; NEW/bin/{command}" if anew else command
    command = "./run-cluster.sh --setup-only" + (f" --stack {stack}" if stack else "")
    return f"rm -r .venv; {command}" if anew else command
