"""The configs and the tuning space that come with the package: listed, found, copied.

There is one copy of them, `configs/` of the repository: `shipped_configs` is a link to it in a checkout, and holds the
files themselves in an installed package.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from merge_bench.errors import UsageError

FOLDER = Path(__file__).with_name("shipped_configs").resolve()
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


def _describe(path: Path) -> Shipped:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return Shipped(path.name, path, first.lstrip("# ").removeprefix(f"{path.name}: "))
