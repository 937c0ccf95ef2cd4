"""The configs that come with the package, what `check` reports, and the tuning space, from their sources."""

from __future__ import annotations

from collections.abc import Iterator

from merge_bench.config.check import STATES
from merge_bench.config.shipped import SPACE, find_shipped_file, shipped_config_names, shipped_files
from merge_bench.config.variables import NO_EFFECT, TRANSLATED, UCXX_OVERRIDES, UCXX_VARIABLES
from merge_bench.tune.space import Setting, read_tuning_space
from tools.reference import page, table

_INTRO = """\
The configs and the tuning space that come with the package, and what `check` reports about the variables of a config.
[configs.md](../configs.md) describes the format."""


def text() -> str:
    """The page."""
    return page(
        "Configs and settings",
        _INTRO,
        "## Shipped configs",
        table(["config", "for"], _configs()),
        *_files(),
        "## States of a variable",
        "`check` gives every variable one state.",
        table(["state", "means"], ([f"`{state}`", means] for state, means in STATES.items())),
        "## Variables of UCXX",
        "Importing UCXX sets some of UCX's variables if they are unset.",
        table(["variable", "set to"], ([f"`{name}`", f"`{value}`"] for name, value in UCXX_OVERRIDES.items())),
        "UCXX's Python part reads these.",
        table(["variable", "values"], _ucxx()),
        "## Names of 2022 and of UCX-Py",
        "Configs may use these names; in the environment they have no effect. If both are set, the new name is used.",
        table(["old", "read as", "why"], _old_names()),
        "These have no effect:",
        table(["old", "why"], ([f"`{name}`", why] for name, why in NO_EFFECT.items())),
        "## The tuning space",
        "What [`tune`](../tune.md) may set, from `configs/space.toml`.",
        table(
            ["setting", "values", "needs", "not with", "risk", "source"],
            map(_setting, read_tuning_space(SPACE).settings),
        ),
    )


def _configs() -> Iterator[list[str]]:
    for each in shipped_files():
        if each.path != SPACE:
            yield [f"[`{each.path.stem}`](#{each.name.replace('.', '')})", each.about]


def _files() -> Iterator[str]:
    for name in shipped_config_names():
        yield f"### {name}"
        yield f"```sh\n{find_shipped_file(name).read_text(encoding='utf-8').strip()}\n```"


def _ucxx() -> Iterator[list[str]]:
    for name, values in UCXX_VARIABLES.items():
        yield [f"`{name}`", ", ".join(f"`{value}`" for value in values) if values else "any"]


def _old_names() -> Iterator[list[str]]:
    for old, (new, why) in TRANSLATED.items():
        yield [f"`{old}`", f"`{new}`", why]


def _setting(setting: Setting) -> list[str]:
    values = "; ".join(
        f"`{value.label}`: {', '.join(f'`{name}={given}`' for name, given in value.variables)}"
        for value in setting.values
    )
    needs = ", ".join((*setting.requires, *(f"UCX {release}" for release in setting.releases)))
    return [f"`{setting.name}`", values, needs, ", ".join(setting.conflicts), setting.risk or "", setting.source or ""]
