"""The configs and the tuning space that come with the package: listed, found, copied.

There is one copy of them, `configs/` of the repository: `shipped_configs` is a link to it in a checkout, and holds the
files themselves in an installed package.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from merge_bench.errors import RunFailed, UsageError
from merge_bench.installation import PACKAGE
from merge_bench.outputs import check_writable, replacing

FOLDER = (PACKAGE / "shipped_configs").resolve()
SPACE = FOLDER / "space.toml"
SUFFIX = ".cfg"


@dataclass(frozen=True)
class Shipped:
    """A shipped file. `about`: its first comment line, without the file's name."""

    name: str
    path: Path
    about: str


def config_names() -> list[str]:
    """The names of the shipped configs, sorted: ``default.cfg``."""
    return sorted(path.name for path in FOLDER.glob(f"*{SUFFIX}"))


def shipped_files() -> list[Shipped]:
    """The shipped configs by name, then the tuning space."""
    return [_describe(FOLDER / name) for name in (*config_names(), SPACE.name)]


def find_shipped(name: str) -> Path:
    """The shipped file of this name, with or without ``.cfg``; never one of the user's.

    Raises
    ------
    UsageError
        Naming all there are.
    """
    known = [*config_names(), SPACE.name]
    for each in (name, name + SUFFIX):
        if each in known:
            return FOLDER / each
    raise UsageError(f"no config named {name!r} is shipped; there are {', '.join(known)}")


def copy_shipped(name: str, destination: str | None, *, force: bool = False) -> Path:
    """Copy a shipped file to `destination`, a file or a folder, by default the working folder; gives the new file.

    Raises
    ------
    UsageError
        If there is no such file, or the destination exists and may not be replaced (`force`), or cannot be written.
    RunFailed
        If writing fails all the same.
    """
    source = find_shipped(name)
    target = Path(destination or ".")
    if target.is_dir():
        target = target / source.name
    if target.exists() and target.resolve() == source:
        raise UsageError(f"{target} is the shipped file itself; name another destination")
    if target.exists() and not force:
        raise UsageError(f"{target} exists; --force replaces it")
    check_writable("DEST", target)
    try:
        with replacing(target) as draft:
            draft.write_bytes(source.read_bytes())
    except OSError as error:
        raise RunFailed(f"{target} was not written: {error.strerror}") from error
    return target


def _describe(path: Path) -> Shipped:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return Shipped(path.name, path, first.lstrip("# ").removeprefix(f"{path.name}: "))
