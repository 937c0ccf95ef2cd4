"""Options and plans as a command line would make them, without a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merge_bench.campaign import make_plan
from merge_bench.campaign.make_plan import Prepared
from merge_bench.campaign.questions import runs_of
from merge_bench.config.options import RunOptions
from merge_bench.config.reader import ConfigFile
from merge_bench.config.resolve import resolve
from merge_bench.merge.plan import Plan


def given(**values: Any) -> RunOptions:
    """What a command line with these parsed values gives; a tuple is several values of an option."""
    return RunOptions().given(**values)


def settled(
    values: Mapping[str, Any], config: ConfigFile | None = None, environ: Mapping[str, str] | None = None
) -> RunOptions:
    """The same, completed by a config and an environment."""
    return resolve(given(**values), config, environ or {})


def prepared(environ: Mapping[str, str] | None = None, **values: Any) -> list[Prepared]:
    """The plan of each run that these options make here."""
    runs = runs_of(settled(values, None, environ))
    for run in runs:
        make_plan.check_options(run)
    return [make_plan.prepare(run, None) for run in runs]


def plan_of(**values: Any) -> Plan:
    """The plan of the only run."""
    (only,) = prepared(**values)
    return only.plan
