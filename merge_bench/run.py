"""A whole `run`: campaign folder, launches, failures, signals, report, exit status."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import merge_bench
from merge_bench import quiet, setup, signals
from merge_bench.config.reader import ConfigFile, read_config
from merge_bench.config.resolve import Resolved, resolve
from merge_bench.errors import LaunchFailed, MergeBenchError, RunFailed, UsageError
from merge_bench.launch.base import Launcher
from merge_bench.launch.choose import choose, make_launcher
from merge_bench.launch.environment import LOOPBACK
from merge_bench.record.schema import CampaignLine, Config, EndLine, FailureLine, LaunchEndLine, RunKey, WarningLine
from merge_bench.record.writer import CampaignWriter
from merge_bench.report.live import Progress
from merge_bench.setup import Prepared

Warned = tuple[str, str, str | None]  # code, message, remedy
WORTH_A_WARNING = ("deprecated", "module-absent", "no-effect")
CHECKOUT = Path(__file__).resolve().parent.parent


def load(
    config_name: str | None, cli_values: Mapping[str, object], fixed: Mapping[str, object] | None = None
) -> tuple[Prepared, ConfigFile | None]:
    """Read the config, resolve the options and make the plan; raises `UsageError` for whatever is wrong.

    `fixed`: options, by their keys, that are so whatever command line, config and environment say.
    """
    config = None
    if config_name is not None:
        from merge_bench.config.reader import find_config

        config = read_config(find_config(config_name, CHECKOUT / "configs"), os.environ)
    options = resolve(cli_values, config, os.environ)
    options = replace(options, values={**options.values, **(fixed or {})})
    warnings = [] if config is None else _check(config, options)
    prepared = setup.prepare(options, config)
    return replace(prepared, warnings=(*prepared.warnings, *warnings)), config


def _check(config: ConfigFile, options: Resolved) -> list[Warned]:
    """What the installed UCX makes of the config: errors stop the run, everything else is a warning in the report."""
    from merge_bench.config.check import check_config

    result = check_config(
        config,
        os.environ,
        ucx=os.environ.get("MERGE_BENCH_UCX", "auto"),
        launcher=_launcher_settings(options),
        options=options.values,
    )
    if result.errors and not options.values["allow_unknown"]:
        raise UsageError("; ".join(result.errors) + " (--allow-unknown goes on regardless)")
    warned: list[Warned] = [("config", sentence, None) for sentence in (*result.errors, *result.warnings)]
    for each in result.variables:
        if each.source == "config" and each.state in WORTH_A_WARNING and each.message:
            where = f"{config.where(each.line)}: " if each.line else ""
            warned.append((f"config-{each.state}", f"{where}{each.name}={each.value}: {each.message}", None))
    warned += [("config-conflict", conflict.message, conflict.documented) for conflict in result.conflicts]
    return warned


def _launcher_settings(options: Resolved) -> dict[str, str]:
    """What the launcher will set, as far as it can be known before hosts are asked."""
    launcher, hosts = choose(options.values, os.environ)
    if not hosts:
        return {"UCX_NET_DEVICES": LOOPBACK} if launcher == "local" else {}
    return {"UCX_NET_DEVICES": str(options.values["interface"])} if options.values["interface"] else {}


def dry_run(prepared: Prepared) -> str:
    """The exact commands that a launch would start, one a line, under the host's name."""
    lines = []
    for command in make_launcher(prepared.settings).commands(prepared.plan, prepared.settings):
        lines.append(f"# {command.role} on {command.host}")
        lines.append(command.shown())
    return "\n".join(lines) if lines else "# nothing is started: the cluster already runs"


def run(prepared: Prepared, config: ConfigFile | None, progress: Progress) -> tuple[Path, int]:
    """Make every launch of the plan; returns the campaign's folder and the exit status.

    What is measured is on the disk as soon as it is measured. Whatever happens, every process that was started is gone
    when this returns.
    """
    plan, settings = prepared.plan, prepared.settings
    name = config.name if config is not None else "default"
    with CampaignWriter.create(settings.results, name) as writer:
        variables = settings.environment
        writer.write(
            CampaignLine(
                campaign_id=writer.campaign_id,
                argv=sys.argv,
                version=merge_bench.__version__,
                git=git_state(),
                configs=[Config(name=name, path=str(config.path) if config else None, variables=dict(variables))],
                seed=plan.seed,
                plans=[plan.to_json()],
                runs=[RunKey(config=name, plan=0)],
            )
        )
        for code, message, remedy in prepared.warnings:
            writer.write(WarningLine(code=code, message=message, remedy=remedy))
        status = 0
        with signals.raising(), quiet.libraries(writer.logs / "driver.log"):
            for launch in range(plan.launches):
                status = max(status, _launch(prepared, name, writer, progress, launch))
                if status and status != RunFailed.exit_status:
                    break
                if signals.received():
                    break
        with contextlib.suppress(RunFailed):
            writer.write(EndLine(status=status))
        return writer.folder, status


def _launch(prepared: Prepared, config: str, writer: CampaignWriter, progress: Progress, launch: int) -> int:
    from merge_bench.client import connect
    from merge_bench.driver import LaunchRun

    plan, settings = prepared.plan, prepared.settings
    launcher = make_launcher(settings)
    started, status = time.monotonic(), 0
    client = None
    conversation: LaunchRun | None = None
    try:
        progress.phase("launching")
        access = launcher.start(plan, settings, writer.logs, f"launch-{launch:03d}-")
        client = connect(access, launcher, settings)
        conversation = LaunchRun(
            client, launcher, plan, settings, writer, progress, launch=launch, started=started
        )  # fmt: skip
        conversation.gather_workers()
        conversation.run(config, plan_index=0, block=launch)
    except Exception as problem:
        error = problem if isinstance(problem, MergeBenchError) else _explain(problem, launcher, conversation, writer)
        status = error.exit_status
        failure = FailureLine(
            launch=launch, config=config, plan=0, code=error.code, message=str(error), host=error.host,
            rank=error.rank, log_tail=error.log_tail,
        )  # fmt: skip
        try:
            writer.write(failure)
        except RunFailed:  # what cannot be recorded is told at least
            print(f"merge_bench: {failure.message}", file=sys.stderr)
    finally:
        with signals.ignored():
            progress.phase("taking the cluster down")
            take_down(launcher, client, conversation, well=status == 0)
            with contextlib.suppress(RunFailed):
                writer.write(LaunchEndLine(launch=launch, status=status, seconds=time.monotonic() - started))
    return status


def _explain(problem: Exception, launcher: Launcher, conversation: Any, writer: CampaignWriter) -> MergeBenchError:
    """A sentence for an error that Dask raised, which as a rule is the echo of a process that ended."""
    with contextlib.suppress(OSError):
        (writer.logs / "error.log").write_text("".join(traceback.format_exception(problem)))
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            if conversation is not None:
                conversation.watch.check()
        except LaunchFailed as reason:
            return reason
        for ended in launcher.exited():
            return LaunchFailed(
                f"{ended.role} on {ended.host} {ended.how} during the run", host=ended.host, log_tail=ended.log_tail
            )
        time.sleep(0.05)
    return LaunchFailed(f"{type(problem).__name__}: {problem} (logs/error.log has the details)", code="internal-error")


def take_down(launcher: Launcher, client: Any, conversation: Any, *, well: bool) -> None:
    """End the conversation and the processes; after a failure the processes first: nothing waits for an answer."""
    if conversation is not None:
        conversation.watch.stop()
        if not well and not launcher.owns_processes:
            conversation.abort("the run is ending")
    if well and client is not None:
        client.close(timeout=1.0)
    launcher.stop()
    if not well and client is not None:
        with contextlib.suppress(Exception):
            client.close(timeout=1.0)


def git_state() -> dict[str, Any] | None:
    """Commit of this checkout, whether it has local changes, and the host; None where there is no git."""
    try:
        commit = subprocess.run(
            ["git", "-C", str(CHECKOUT), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "-C", str(CHECKOUT), "status", "--porcelain", "--untracked-files=no"],
            capture_output=True, text=True, timeout=5, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(dirty), "host": socket.gethostname()}
