"""Compares what stands for RAPIDS in tests with what RAPIDS is."""

from __future__ import annotations

import enum
import inspect
import re
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tests.helpers import fake_nvml, fake_rapids, fake_rapidsmpf
from tests.rapids.fitting import parameters
from tests.rapids.kinds import Each, Entry, Instance, Library, from_text
from tests.rapids.uses import Reading


def offered(modules: Mapping[str, types.ModuleType]) -> dict[str, Any]:
    """Functions, classes and constants of fake modules by their dotted path; modules in modules as well."""
    found: dict[str, Any] = {}

    def add(path: str, module: types.ModuleType) -> None:
        for name, value in vars(module).items():
            if isinstance(value, types.ModuleType):
                add(f"{path}.{name}", value)
            elif not name.startswith("__"):
                found[f"{path}.{name}"] = value

    for path, module in modules.items():
        add(path, module)
    return found


def ours(library: Library, readings: Iterable[Reading]) -> Iterator[str]:
    """Where the fakes in tests/ differ from the library."""
    modules = fake_rapids.modules() | fake_rapidsmpf.modules()
    files = [module for name, module in sys.modules.items() if name.startswith("tests.helpers.fake_")]
    named = {name: made for file in files for name, made in vars(file).items() if isinstance(made, type)}
    constructed = {use.path for reading in readings for use in reading.uses if use.positional is not None}
    yield from differences(modules, results(modules, named, library), constructed, library)
    yield from management(fake_nvml.library(), library)


def management(fake: types.ModuleType, library: Library) -> Iterator[str]:
    """Where a fake of NVIDIA's management library differs: names, constants, how many arguments functions take."""
    for name, made in vars(fake).items():
        if name.startswith("__"):
            continue
        entry = library.look(f"pynvml.{name}")
        if entry is None:
            yield f"pynvml.{name}: there is no such name"
        elif not callable(made):
            if made != entry.value:
                yield f"pynvml.{name}: {made!r}, and the real value is {entry.value!r}"
        elif isinstance(made, type) != (entry.what == "class"):
            yield f"pynvml.{name}: a {type(made).__name__}, and the real one is a {entry.what}"
        elif not isinstance(made, type):
            ours = list(inspect.signature(made).parameters.values())
            theirs = parameters(entry.call or "()")
            needed = sum(one.default is inspect.Parameter.empty for one in theirs)
            starred = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in ours)
            if not starred and not needed <= len(ours) <= len(theirs):
                yield f"pynvml.{name}: takes {len(ours)} arguments, and the real one {entry.call}"


def differences(
    modules: Mapping[str, types.ModuleType], others: Mapping[str, type], constructed: Collection[str], library: Library
) -> Iterator[str]:
    """Where fakes differ from the library: names that it does not have, other parameters, other values.

    Parameters
    ----------
    others
        Fake classes that no module names, since only results of functions are of them; by full name.
    constructed
        Paths of classes that our source calls: only their parameters count.
    """
    classes: dict[str, type] = dict(others)
    for path, fake in offered(modules).items():
        entry = library.look(path)
        if entry is None:
            yield f"{path}: RAPIDS has no such name"
        elif isinstance(fake, type) and issubclass(fake, enum.Enum):
            yield from _enumeration(path, fake, library)
        elif isinstance(fake, type):
            classes[entry.returns] = fake
            if path in constructed:
                yield from _call(path, fake, entry)
        elif callable(fake):
            yield from _call(path, fake, entry)
        elif entry.what == "constant" and fake != entry.value:
            yield f"{path}: {fake!r}, and the real value is {entry.value!r}"
    for cls, fake in classes.items():
        yield from _members(cls, fake, library)


def _enumeration(path: str, fake: type[enum.Enum], library: Library) -> Iterator[str]:
    for member in fake:
        entry = library.look(f"{path}.{member.name}")
        if entry is None:
            yield f"{path}.{member.name}: RAPIDS has no such name"
        elif entry.value != member.value:
            yield f"{path}.{member.name}: {member.value!r}, and the real value is {entry.value!r}"


def _members(cls: str, fake: type, library: Library) -> Iterator[str]:
    """Methods and properties that both have; what only the fake has no source of ours can use unnoticed."""
    for name in sorted(name for name in dir(fake) if not name.startswith("_")):
        entry = library.member(cls, name)
        if entry is None:
            continue
        found = inspect.getattr_static(fake, name)
        bound = isinstance(found, (staticmethod, classmethod))
        if (bound or callable(found)) != (entry.call is not None):
            yield f"{cls}.{name}: a {'property' if entry.call is not None else 'method'}, and the real one is none"
        elif entry.call is not None:
            yield from _call(f"{cls}.{name}", getattr(fake, name), entry, drop=0 if bound else 1)


def _call(path: str, fake: Any, entry: Entry, drop: int = 0) -> Iterator[str]:
    if entry.call is None:
        yield f"{path}: a function, and the real one cannot be called"
        return
    ours, theirs = list(inspect.signature(fake).parameters.values())[drop:], parameters(entry.call)
    if not _agree(ours, theirs):
        shown = inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in ours])
        yield f"{path}: takes {shown}, and the real one {entry.call}"


def _agree(ours: list[inspect.Parameter], theirs: list[inspect.Parameter]) -> bool:
    """Same names, order, kinds and defaults; a real default of `...` is any."""
    if [(one.name, one.kind) for one in ours] != [(one.name, one.kind) for one in theirs]:
        return False
    pairs = zip(ours, theirs, strict=True)
    empty = inspect.Parameter.empty
    return all(
        one.default is not empty if other.default is ... else one.default == other.default for one, other in pairs
    )


def results(modules: Mapping[str, types.ModuleType], named: Mapping[str, type], library: Library) -> dict[str, type]:
    """Of the fake classes `named`, those that results of the modules' functions are of, by the real classes' names."""
    found: dict[str, type] = {}
    for path in offered(modules):
        entry = library.look(path)
        if entry:
            for cls in re.findall(r"\b(?:pylibcudf|rmm)[\w.]*", entry.returns):
                found |= _standing_for(cls, named)
    for cls in list(found):
        for name in dir(found[cls]):
            entry = None if name.startswith("_") else library.member(cls, name)
            for kind in from_text(entry.returns, "") if entry and entry.returns else ():
                ones = kind.items if isinstance(kind, Each) else {kind}
                for one in ones:
                    if isinstance(one, Instance):
                        found |= _standing_for(one.cls, named)
    return found


def _standing_for(cls: str, named: Mapping[str, type]) -> dict[str, type]:
    name = cls.rpartition(".")[2]
    return {cls: named[name]} if name in named else {}
