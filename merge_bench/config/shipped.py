"""Finds configs: those of the user, and the configs and the tuning space that the package contains.

The only copy of the shipped files is `configs/` of the repository: `shipped_configs` is a link to it in a checkout, and
contains the files in an installed package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config.parsers import suggest_similar_names
from merge_bench.errors import UsageError

FOLDER = Path(__file__).with_name("shipped_configs").resolve()
SPACE = FOLDER / "space.toml"
SUFFIX = ".cfg"


@dataclass(frozen=True)
class ShippedFile:
    """A config or tuning space that the package contains. `about`: its first comment line, without the file's name."""

    name: str
    path: Path
    about: str


def shipped_config_names(folder: Path | None = None) -> list[str]:
    """The sorted names of the shipped configs, such as ``default.cfg``."""
    return sorted(path.name for path in (folder or FOLDER).glob(f"*{SUFFIX}"))


def shipped_files() -> list[ShippedFile]:
    """The shipped configs by name, then the tuning space."""
    return [_read_shipped_file(FOLDER / name) for name in (*shipped_config_names(), SPACE.name)]


def find_shipped_file(name: str, extra_names: Sequence[str] = (SPACE.name,)) -> Path:
    """The path of the shipped config with this name, with or without ``.cfg``, or of a shipped file in `extra_names`.

    Raises UsageError, with the names of the shipped files, if there is none.
    """
    shipped = [*shipped_config_names(), *extra_names]
    for candidate in (name, name + SUFFIX):
        if candidate in shipped:
            return FOLDER / candidate
    raise UsageError(f"no shipped config is named {name!r}; the shipped files are {', '.join(shipped)}")


def find_config_file(name_or_path: str, shipped_folder: Path = FOLDER) -> Path:
    """Find the config with this path or bare name, with or without ``.cfg``.

    A bare name means a file in the working folder, or else a shipped config in `shipped_folder`. Raises UsageError,
    with similar names of shipped configs, if there is no such file.
    """
    if not name_or_path or "\0" in name_or_path:
        raise UsageError(
            f"{name_or_path!r} cannot be the name of a config; choose a file or one of the shipped configs:"
            f" {', '.join(shipped_config_names(shipped_folder))}"
        )
    named_path = Path(name_or_path)
    candidates = [named_path]
    if named_path.name == name_or_path:
        candidates += [
            Path(name_or_path + SUFFIX),
            shipped_folder / name_or_path,
            shipped_folder / (name_or_path + SUFFIX),
        ]
    try:
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        if named_path.exists():
            return named_path
    except OSError as error:
        raise UsageError(f"{name_or_path[:80]}: cannot check whether this file exists: {error.strerror}") from None
    shipped = [each.removesuffix(SUFFIX) for each in shipped_config_names(shipped_folder)]
    hint = (
        suggest_similar_names(named_path.name.removesuffix(SUFFIX), shipped)
        or f"; shipped configs: {', '.join(shipped)}"
    )
    raise UsageError(f"{name_or_path} is neither a file nor a shipped config{hint}")


def _read_shipped_file(path: Path) -> ShippedFile:
    """Read the description of a shipped config or tuning space from its first line."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return ShippedFile(path.name, path, first.lstrip("# ").removeprefix(f"{path.name}: "))
