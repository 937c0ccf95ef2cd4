"""The UCX installations that tests look at, asked once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from merge_bench.config.reader import ConfigFile, read_config
from merge_bench.config.ucx_info import InstalledUcx, find_ucx_info, read_installed_ucx
from merge_bench.errors import UsageError


@pytest.fixture(scope="session")
def wheel() -> InstalledUcx:
    """The libucx wheel."""
    try:
        return read_installed_ucx(find_ucx_info("wheel"))
    except UsageError as error:
        pytest.skip(f"needs the libucx wheel: {error}")


@pytest.fixture(scope="session")
def system() -> InstalledUcx:
    """A distribution's UCX with InfiniBand modules, such as Debian 12's ucx-utils (1.13)."""
    try:
        return read_installed_ucx(find_ucx_info("system"))
    except UsageError as error:
        pytest.skip(f"needs a system UCX (Debian: ucx-utils): {error}")


@pytest.fixture
def config_of(tmp_path: Path) -> Callable[[str], ConfigFile]:
    """A config made of a text."""

    def make(text: str) -> ConfigFile:
        path = tmp_path / "a.cfg"
        path.write_text(text)
        return read_config(path, {})

    return make
