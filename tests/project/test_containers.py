"""The recipes of container images: they get the sources that are needed, install from the locks, and name no host."""

from __future__ import annotations

import email
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.helpers.installed import build_wheel, copy_sources, files_of
from tests.project.scripts import ROOT, STACKS

TEXTS = {name: (ROOT / "cluster" / name).read_text() for name in ("Containerfile", "apptainer.def")}
TARGET = "/opt/merge_bench"


def copied(name: str) -> set[str]:
    """Paths of the repository that the image gets, below `TARGET` where they are in the repository."""
    if name == "Containerfile":
        lines = [line.split()[1:] for line in TEXTS[name].splitlines() if line.startswith("COPY ")]
        for sources in lines:
            assert [sources[-1].removeprefix("./")] in ([""], sources[:-1])
        return {source for *sources, _ in lines for source in sources}
    files = re.search(r"^%files\n(.*?)\n\n", TEXTS[name], re.MULTILINE | re.DOTALL)
    assert files
    pairs = dict(line.split() for line in files[1].splitlines())
    assert all(target == f"{TARGET}/{source}" for source, target in pairs.items())
    return set(pairs)


@pytest.mark.parametrize("name", TEXTS)
def test_packages_come_from_the_lock_of_the_stack(name: str) -> None:
    text = re.sub(r"\s*\\\n\s*", " ", re.sub(r"^#.*\n", "", TEXTS[name], flags=re.MULTILINE))
    (install,) = re.findall(r"\./run-cluster\.sh --setup-only --stack \"([^\"]+)\"", text)
    assert install in ("${STACK}", "{{ STACK }}")
    assert "pip install" not in text
    default = re.search(r"^\s*(?:ARG )?STACK=(\S+)$", text, re.MULTILINE)
    assert default
    assert default[1] in STACKS
    assert all((ROOT / f"cluster/locks/{stack}/requirements.lock").is_file() for stack in STACKS)
    assert {"cluster", "run-cluster.sh", "pyproject.toml"} <= copied(name)


@pytest.mark.parametrize("name", TEXTS)
def test_no_host_is_named_and_the_log_of_pip_does_not_stay(name: str) -> None:
    text = TEXTS[name]
    assert not re.search(r"://|\b[\w-]+\.(com|org|io|net|dev)\b|index-url|trusted-host|find-links", text)
    base = re.search(r"^\s*(?:ARG )?BASE=(\S+)$", text, re.MULTILINE)
    assert base
    assert "/" not in base[1]  # a name before a slash may be a host
    assert "rm .venv/.merge-bench-setup.log" in text.partition("--setup-only --stack")[2]
    assert ".merge-bench-setup.log" in (ROOT / "cluster/bootstrap.sh").read_text()


@pytest.mark.slow
def test_an_image_gets_all_that_the_package_is_made_of(tmp_path: Path) -> None:
    """The wheel of what is copied is the wheel of the repository."""
    assert copied("Containerfile") == copied("apptainer.def")
    whole, part = copy_sources(tmp_path / "whole"), tmp_path / "part"
    for source in copied("Containerfile"):
        (part / source).parent.mkdir(parents=True, exist_ok=True)
        if (whole / source).is_dir():
            shutil.copytree(whole / source, part / source, symlinks=True)
        else:
            shutil.copy2(whole / source, part / source)
    wheel = build_wheel(part, tmp_path / "wheel-of-part")
    assert files_of(wheel) == files_of(build_wheel(whole, tmp_path / "wheel-of-whole"))
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_string(archive.read(name).decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
