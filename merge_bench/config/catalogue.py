"""The catalogue of UCX's settings: those of the installed library, and those of modules that are not installed here."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources

from merge_bench.config.ucx_info import Installed, Setting

_MODULES = {
    "core": "UCX itself",
    "debug": "a UCX that was built with statistics or debugging",
    "ib": "the InfiniBand module (libuct_ib)",
    "ib_mlx5": "the InfiniBand module for NVIDIA adapters (libuct_ib, since 1.18 libuct_ib_mlx5)",
    "ib_efa": "the module for AWS EFA (libuct_ib_efa)",
    "rdmacm": "the module of the RDMA connection manager (libuct_rdmacm)",
    "cuda": "the CUDA module (libuct_cuda, which needs a CUDA driver)",
    "cuda_gdrcopy": "the GDRCopy module (libuct_cuda_gdrcopy)",
}
# Read with getenv, so in no table (src/ucs/config/parser.c).
_OUTSIDE_TABLES = {"UCX_CONFIG_DIR"}


@dataclass(frozen=True)
class ShippedName:
    """A name of a public release; `since`, `until`: first and last minor release (of those read) that have it."""

    name: str
    module: str
    inherits: tuple[str, ...]
    since: str
    until: str


@dataclass(frozen=True)
class Finding:
    """What a name is.

    `kind`: ``known``, ``inherited``, ``alias``, ``deprecated``, ``module-absent``, ``no-effect`` or ``unknown``;
    `syntax`: of its value, where the installed library has it.
    """

    kind: str
    message: str = ""
    syntax: str = ""


@dataclass(frozen=True)
class Catalogue:
    """Every name that UCX has; `installed` is None where no library could be asked."""

    installed: Installed | None
    shipped: dict[str, ShippedName]
    versions: tuple[str, ...]
    heirs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shipped_heirs: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor number of the installed release, or of the newest one in the shipped list."""
        text = self.installed.version if self.installed else self.versions[-1]
        return _minor(text)

    def names(self) -> set[str]:
        """Every name that means something to some release."""
        installed = set(self.installed.settings) if self.installed else set()
        return installed | set(self.heirs) | set(self.shipped) | set(self.shipped_heirs) | _OUTSIDE_TABLES

    def nearest(self, name: str) -> list[str]:
        """Up to three existing names that look like `name`, the likeliest first; installed ones before others."""
        installed = {*(self.installed.settings if self.installed else {}), *self.heirs}
        near = difflib.get_close_matches(name, self.names(), n=8, cutoff=0.8)
        return sorted(near, key=lambda each: each not in installed)[:3] if len(near) > 3 else near

    def find(self, name: str) -> Finding:
        """What `name` is to the installed library."""
        if name in _OUTSIDE_TABLES:
            return Finding("known", "folder of a ucx.conf")
        if self.installed is not None:
            if name in self.installed.settings:
                return _installed(self.installed.settings[name])
            if name in self.heirs:
                return self._inherited(name, self.installed)
        return self._shipped(name)

    def _inherited(self, name: str, installed: Installed) -> Finding:
        heirs = [installed.settings[heir] for heir in self.heirs[name]]
        current = [heir for heir in heirs if not heir.deprecated]
        if not current:
            return _installed(heirs[0])
        return Finding("inherited", f"sets {_several([heir.name for heir in current])}", current[0].syntax)

    def _shipped(self, name: str) -> Finding:
        heirs = [name] if name in self.shipped else list(self.shipped_heirs.get(name, ()))
        if not heirs:
            near = self.nearest(name)
            hint = f"did you mean {' or '.join(near)}?" if near else "no setting of UCX looks like it"
            return Finding(
                "unknown", f"no release of UCX from {self.versions[0]} to {self.versions[-1]} has it; {hint}"
            )
        entries = [self.shipped[heir] for heir in heirs]
        now = [entry for entry in entries if self._exists_now(entry)]
        sets = "" if heirs == [name] else f"sets {_several(heirs)}; "
        if now and self.installed is None:
            return Finding("known", f"{sets}the installed UCX could not be asked")
        if now:
            module = _MODULES.get(now[0].module, f"the module {now[0].module}")
            if now[0].module == "core":
                return Finding(
                    "no-effect", f"UCX {self.installed.version if self.installed else ''} was built without it"
                )
            return Finding("module-absent", f"{sets}comes with {module}, which is not loaded here")
        first = min(entries, key=lambda entry: _minor(entry.since))
        if _minor(first.since) > self.minor:
            return Finding("no-effect", f"comes with UCX {first.since}; this one is {self._version()}")
        last = max(entries, key=lambda entry: _minor(entry.until))
        return Finding("no-effect", f"UCX dropped it after {last.until}; this one is {self._version()}")

    def _exists_now(self, entry: ShippedName) -> bool:
        newest = entry.until == self.versions[-1]
        return _minor(entry.since) <= self.minor and (newest or self.minor <= _minor(entry.until))

    def _version(self) -> str:
        return self.installed.version if self.installed else self.versions[-1]


def _installed(setting: Setting) -> Finding:
    if setting.deprecated:
        return Finding("deprecated", setting.doc.removeprefix("The configuration parameter ") or "UCX ignores it")
    if setting.alias_of:
        return Finding("alias", f"another name of {setting.alias_of}", setting.syntax)
    return Finding("known", "", setting.syntax)


def _minor(version: str) -> tuple[int, int]:
    numbers = [int(part) if part.isdigit() else 0 for part in version.split(".")[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (numbers[0], 0)


def _several(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(listed[:3])
    return shown if len(listed) <= 3 else f"{shown} and {len(listed) - 3} more"


def _heirs(inherits: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Inherited name → the settings it sets."""
    found: dict[str, list[str]] = {}
    for name, parents in inherits:
        for parent in parents:
            found.setdefault(parent, []).append(name)
    return {parent: tuple(names) for parent, names in found.items()}


@functools.cache
def shipped_names() -> tuple[tuple[str, ...], dict[str, ShippedName]]:
    """The releases read, and their names, from ``ucx_names.json``."""
    data = json.loads(resources.files("merge_bench.config").joinpath("ucx_names.json").read_text(encoding="utf-8"))
    versions = tuple(data["versions"])
    names = {
        f"UCX_{name}": ShippedName(
            f"UCX_{name}",
            module,
            tuple(f"UCX_{parent}" for parent in facts.get("inherits", ())),
            facts.get("since", versions[0]),
            facts.get("until", versions[-1]),
        )
        for module, entries in data["modules"].items()
        for name, facts in entries.items()
    }
    return versions, names


def build_catalogue(installed: Installed | None) -> Catalogue:
    """The catalogue for `installed`, or from the shipped list alone."""
    versions, shipped = shipped_names()
    own = installed.settings.values() if installed else ()
    return Catalogue(
        installed,
        shipped,
        versions,
        _heirs((setting.name, setting.inherits) for setting in own),
        _heirs((entry.name, entry.inherits) for entry in shipped.values()),
    )
