"""Finds what the name of a UCX setting means, in the installed library and in other releases and modules."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from merge_bench.config.parsers import did_you_mean
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
# UCX reads it with getenv, so no table contains it (src/ucs/config/parser.c).
_OUTSIDE_TABLES = {"UCX_CONFIG_DIR"}


@dataclass(frozen=True)
class ShippedName:
    """A setting's name in UCX's public releases. `since`, `until`: the first and last examined release that has it."""

    name: str
    module: str
    inherits: tuple[str, ...]
    since: str
    until: str


@dataclass(frozen=True)
class Meaning:
    """What the name of a setting means to the installed UCX.

    `kind`: ``known``, ``inherited``, ``alias``, ``deprecated``, ``module-absent``, ``no-effect`` or ``unknown``;
    `message`: the meaning in words; `syntax`: that of the value, if the installed UCX has the setting.
    """

    kind: str
    message: str = ""
    syntax: str = ""


@dataclass(frozen=True)
class Catalogue:
    """All names of UCX settings: of the installed UCX (None if ucx_info cannot be run) and of public releases.

    `shipped`: the names in the list of public `versions`. `heirs`, `shipped_heirs`: by inherited name, the settings
    that the name sets, in the installed UCX and in that list.
    """

    installed: Installed | None
    shipped: dict[str, ShippedName]
    versions: tuple[str, ...]
    heirs: dict[str, list[str]]
    shipped_heirs: dict[str, list[str]]

    @property
    def minor(self) -> tuple[int, ...]:
        """The major and minor number of `version`."""
        return _minor_version(self.version)

    @property
    def version(self) -> str:
        """The release of the installed UCX, or else the newest examined release."""
        return self.installed.version if self.installed else self.versions[-1]

    def names(self) -> set[str]:
        """Every name that some release reads."""
        installed = set(self.installed.settings) if self.installed else set()
        return installed | set(self.heirs) | set(self.shipped) | set(self.shipped_heirs) | _OUTSIDE_TABLES

    def find_meaning(self, name: str) -> Meaning:
        """Find what the setting `name` means to the installed UCX."""
        if name in _OUTSIDE_TABLES:
            return Meaning("known", "folder that contains ucx.conf")
        if self.installed is not None:
            if name in self.installed.settings:
                return _meaning_here(self.installed.settings[name])
            if name in self.heirs:
                heirs = [self.installed.settings[heir] for heir in self.heirs[name]]
                current = [heir for heir in heirs if not heir.deprecated]
                if not current:
                    return _meaning_here(heirs[0])
                return Meaning("inherited", _sets_text([heir.name for heir in current]), current[0].syntax)
        return self._meaning_elsewhere(name)

    def _meaning_elsewhere(self, name: str) -> Meaning:
        names = [name] if name in self.shipped else self.shipped_heirs.get(name, [])
        if not names:
            hint = did_you_mean(name, self.names(), cutoff=0.8) or "; no UCX setting has a similar name"
            return Meaning(
                "unknown", f"no UCX release from {self.versions[0]} to {self.versions[-1]} has this setting{hint}"
            )
        entries = [self.shipped[each] for each in names]
        now = [entry for entry in entries if self._exists_now(entry)]
        sets = "" if names == [name] else f"{_sets_text(names)}; "
        if now and self.installed is None:
            return Meaning("known", f"{sets}value not checked, because ucx_info cannot be run")
        if now and now[0].module == "core":
            return Meaning("no-effect", f"UCX {self.version} was built without this setting")
        if now:
            module = _MODULES.get(now[0].module, f"the module {now[0].module}")
            return Meaning("module-absent", f"{sets}belongs to {module}, which is not loaded on this machine")
        first = min(entries, key=lambda entry: _minor_version(entry.since))
        if _minor_version(first.since) > self.minor:
            return Meaning("no-effect", f"needs UCX {first.since} or newer; this UCX is {self.version}")
        last = max(entries, key=lambda entry: _minor_version(entry.until))
        return Meaning("no-effect", f"UCX removed this setting after {last.until}; UCX {self.version} does not have it")

    def _exists_now(self, entry: ShippedName) -> bool:
        newest = entry.until == self.versions[-1]
        return _minor_version(entry.since) <= self.minor and (newest or self.minor <= _minor_version(entry.until))


def _meaning_here(setting: Setting) -> Meaning:
    if setting.deprecated:
        return Meaning(
            "deprecated", setting.doc.removeprefix("The configuration parameter ") or "UCX ignores this setting"
        )
    if setting.alias_of:
        return Meaning("alias", f"another name of {setting.alias_of}", setting.syntax)
    return Meaning("known", "", setting.syntax)


def _minor_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _sets_text(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"sets {', '.join(names[:3])}{more}"


def _heirs_by_name(settings: Iterable[Setting | ShippedName]) -> dict[str, list[str]]:
    """By inherited name, the names of the settings that it sets."""
    heirs: dict[str, list[str]] = {}
    for setting in settings:
        for parent in setting.inherits:
            heirs.setdefault(parent, []).append(setting.name)
    return heirs


@functools.cache
def shipped_names() -> tuple[tuple[str, ...], dict[str, ShippedName]]:
    """The examined UCX releases and their settings' names, from ``ucx_names.json``."""
    data = json.loads(resources.files("merge_bench.config").joinpath("ucx_names.json").read_text(encoding="utf-8"))
    versions = tuple(data["versions"])
    names = {
        f"UCX_{name}": ShippedName(
            f"UCX_{name}",
            module,
            tuple(f"UCX_{parent}" for parent in entry.get("inherits", ())),
            entry.get("since", versions[0]),
            entry.get("until", versions[-1]),
        )
        for module, entries in data["modules"].items()
        for name, entry in entries.items()
    }
    return versions, names


def build_catalogue(installed: Installed | None) -> Catalogue:
    """Make the catalogue of names of the `installed` UCX, if there is one, and of public releases."""
    versions, shipped = shipped_names()
    own = installed.settings.values() if installed else ()
    return Catalogue(installed, shipped, versions, _heirs_by_name(own), _heirs_by_name(shipped.values()))
