"""A merge of merge_bench as a ReFrame test: it passes only if the result is verified, and reports how fast it was.

Copy it into your tests, and give it the reference values of your systems:

    reference = {"mycluster:gpu": {"throughput": (40.0, -0.1, None, "GiB/s")}}

A reference is (value, lower and upper limit as a fraction of it, unit). Without one, figures are only reported.

The test needs `merge-bench` on PATH. It starts its own processes on the job's nodes: ReFrame only allocates them.
"""

import json
from pathlib import Path

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import (
    deferrable,
    performance_function,
    run_before,
    sanity_function,
    variable,
)
from reframe.core.exceptions import SanityError

GIB = 2**30


@rfm.simple_test
class MergeBenchTest(rfm.RunOnlyRegressionTest):
    """`merge-bench run --json`. Set variables with `-S`: `-S chunk=1e6 -S num_tasks=16 -S num_tasks_per_node=4`."""

    descr = "Distributed dataframe merge over UCX"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "merge-bench"
    keep_files = ["run.json", "results"]
    num_tasks = 2
    """Workers. One alone sends nothing, so that it has no bandwidth."""
    num_tasks_per_node = 2
    time_limit = "30m"

    config = variable(str, value="default.cfg")
    """A file, or the name of a shipped config."""
    chunk = variable(str, value="25e6")
    """Rows of each frame in each worker's chunk."""
    iterations = variable(int, value=10)
    """Timed merges in a launch."""
    launches = variable(int, value=1)
    """Launches of the cluster."""
    options = variable(str, value="")
    """Further options of `merge-bench run`."""

    @run_before("run")
    def make_command(self):
        self.job.launcher = getlauncher("local")()
        self.executable_opts = [
            "run", f"--config {self.config}", f"--chunk {self.chunk}", f"--iterations {self.iterations}",
            f"--launches {self.launches}", f"--workers {self.num_tasks}", self.options, "--json > run.json",
        ]  # fmt: skip

    @deferrable
    def document(self):
        """The document of `--json`."""
        try:
            return json.loads(Path(self.stagedir, "run.json").read_text())
        except (OSError, ValueError):
            raise SanityError("merge-bench printed no document; see the job's standard error") from None

    @sanity_function
    def result_is_verified(self):
        document = self.document().evaluate()
        if document["error"] is not None:
            raise SanityError(document["error"]["message"])
        if not document["verified"]:
            raise SanityError("the merge ran, but its result is not verified")
        if self.job.exitcode:
            raise SanityError(f"merge-bench ended with status {self.job.exitcode}; see the job's standard error")
        return True

    @performance_function("GiB/s")
    def throughput(self):
        document = self.document().evaluate()
        return document["throughput_bytes_per_second"]["median"] / GIB

    @performance_function("GiB/s")
    def bandwidth_per_worker(self):
        document = self.document().evaluate()
        return document["bandwidth_bytes_per_second"]["harmonic_mean"] / GIB
