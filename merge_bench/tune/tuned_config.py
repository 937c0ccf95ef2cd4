"""The config files of a tuning: one for each candidate, and the one that was found, with comments on how."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath

from merge_bench.config.files import replace_file
from merge_bench.config.reader import comment_out_assignments
from merge_bench.errors import RunFailed
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import TuningStepLine
from merge_bench.tune.evaluator import ABLATE, Candidate
from merge_bench.tune.result import TuningResult, tuning_result_of
from merge_bench.tune.space import TuningSpace

LONGEST_NAME = 120
RESUME = "run the same command to resume"


def candidate_config_text(baseline_text: str, candidate: Candidate) -> str:
    """The text of a candidate's config file: that of the baseline, then its settings, which take precedence."""
    settings = dict(variable for value in candidate.values for variable in value.variables)
    lines = [_replaced_baseline_text(baseline_text, settings), ""] if baseline_text.strip() else []
    return "\n".join([*lines, *_export_lines(settings.items())]) + "\n"


def _replaced_baseline_text(baseline_text: str, names: Collection[str]) -> str:
    """The text of a baseline's config, in which variables that later lines set anew are comments where possible."""
    return comment_out_assignments(baseline_text, names, "replaced below").rstrip("\n")


def _export_lines(variables: Iterable[tuple[str, str]]) -> list[str]:
    return [f"export {name}={shlex.quote(text)}" for name, text in variables]


def candidate_file_name(candidate_name: str) -> str:
    """A file name for a candidate's config; if characters of the name are replaced, part of a checksum is added."""
    plain = re.sub(r"[^A-Za-z0-9_=+. -]", "-", candidate_name)[:LONGEST_NAME].lstrip(".")
    checksum = hashlib.sha256(candidate_name.encode(errors="surrogateescape")).hexdigest()[:8]
    return plain if plain == candidate_name else f"{plain}-{checksum}"


def write_tuned_config(
    campaign: Campaign,
    space: TuningSpace,
    baseline_text: str,
    size_names: Sequence[str],
    metric: str,
    output_path: Path,
) -> None:
    """Write the config that was found, if there is one, to `output_path`; parameters as of `tuned_config_text`."""
    result = tuning_result_of(campaign)
    if result.winner is None:
        return
    text = tuned_config_text(campaign, result, space, baseline_text=baseline_text, size_names=size_names, metric=metric)
    try:
        with replace_file(output_path) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise RunFailed(f"--output {output_path} was not written: {error.strerror}; {RESUME}") from error


def tuned_config_text(
    campaign: Campaign,
    result: TuningResult,
    space: TuningSpace,
    *,
    baseline_text: str,
    size_names: Sequence[str],
    metric: str,
) -> str:
    """The text of the config file for what was found: comments on its measurement, the baseline, then the settings.

    `baseline_text`: the text of the baseline's config; empty for the built-in defaults. `size_names`: the name of each
    problem size: ``1,000,000 rows per chunk``.
    """
    assert result.winner is not None
    launch = next(launch for launch in campaign.launches if launch.line is not None)
    assert launch.line is not None
    first = launch.line.workers[0]
    hosts = list(dict.fromkeys(worker.host for worker in launch.line.workers))
    start = PurePath(campaign.head.configs[0].path or result.baseline).name
    workers = "" if result.of_command else f" {len(launch.line.workers)} workers;"
    commit = str(campaign.head.git.commit if campaign.head.git else "unknown")[:12]
    head = [
        f"# Tuned for {hosts[0]}{f' and {len(hosts) - 1} more' * (len(hosts) > 1)} on {datetime.now(UTC):%Y-%m-%d} by"
        f" merge_bench tune, from {start}; measure again on other hosts.",
        f"# Hosts: {', '.join(hosts)};{workers} {first.hardware.cpu_model or '?'}.",
        f"# UCX {first.ucx.version or 'unknown'} ({first.ucx.origin or 'unknown'});"
        f" merge_bench {campaign.head.version}, commit {commit}; campaign {campaign.head.campaign_id}.",
        *(
            f"# {result.measured_quantity_text(metric, size_names[line.plan])}: {_speed_up_text(line)}, {line.reason}."
            for line in result.confirmation_steps
        ),
    ]
    lines = ["".join(letter if letter.isprintable() else "\ufffd" for letter in line) for line in head]
    values = {value.value_id: value for value in space.values}
    if baseline_text.strip():
        names = [name for setting in result.winner.settings for name, _ in values[setting].variables]
        lines += ["", f"# The text of {start}:", _replaced_baseline_text(baseline_text, names)]
    for setting in result.winner.settings:
        step = result.contributions[setting]
        versus = " compared with this config without it" if step and step.phase == ABLATE else " alone"
        lines += ["", f"# {setting}: " + (_speed_up_text(step) + versus if step else "not measured alone")]
        lines += _export_lines(values[setting].variables)
    return "\n".join(lines) + "\n"


def _speed_up_text(line: TuningStepLine) -> str:
    """The speed-up of a step as text: ``1.47 × (1.41 to 1.55, 8 blocks)``."""
    if line.ratio is None:
        return "not measured"
    interval = f"{line.low:.3f} to {line.high:.3f}, " if line.low is not None and line.high is not None else ""
    return f"{line.ratio:.3f} × ({interval}{line.launches} blocks)"
