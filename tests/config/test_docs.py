"""docs/configs.md against the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.campaign.registry_options import options
from merge_bench.config.old_names import OLD_NAMES, no_effect
from merge_bench.config.options import Option
from merge_bench.config.variable_states import STATES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "configs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", options(), ids=lambda option: option.name)
def test_every_option_has_its_row(option: Option) -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith((f"| `--{option.name} ", f"| `--{option.name}`"))]
    assert len(rows) == 1
    assert (option.variable in rows[0].split(" | ")[1]) == option.in_config
    assert option.help.removesuffix(" [none]") in rows[0]


def test_states_old_names_and_configs_are_described() -> None:
    for name in (*STATES, *(path.stem for path in (ROOT / "configs").glob("*.cfg"))):
        assert f"| `{name}` |" in TEXT
    for name in OLD_NAMES:
        assert name in TEXT or no_effect(name)
