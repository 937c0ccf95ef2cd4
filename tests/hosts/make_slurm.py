"""A SLURM of two nodes on one machine, real in all but its hosts: munged, slurmctld and two slurmd.

All of it lives in namespaces of its own (network, PID, mount, UTS), so that its ports, its processes and its files meet
nobody else's, and end with it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.hosts.make_hosts import Namespaces, patience, why_not

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
NODES = ("n1", "n2")
SCRIPT = """
cd "$1"
ip link set lo up
# Names are resolved only where there is an address beside loopback's.
ip link add slurm0 type veth peer name slurm1
ip address add 10.214.0.1/24 dev slurm0
ip link set slurm0 up
ip link set slurm1 up
mount --bind hosts /etc/hosts
mount -t tmpfs tmpfs /run
hostname slurmhost
export SLURM_CONF="$1/slurm.conf"
munged --foreground --force --key-file="$1/munge.key" --socket="$1/munge.socket" --pid-file="$1/munge.pid" \
    --seed-file="$1/munge.seed" --log-file="$1/munge.log" &
while [ ! -S munge.socket ]; do sleep 0.05; done
slurmctld -D -i &
for node in n1 n2; do slurmd -D -N $node & done
wait
"""
CONFIG = """
ClusterName=merge-bench-test
SlurmctldHost=slurmhost(10.214.0.1)
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeHostname=slurmhost NodeAddr=10.214.0.1 Port=17001 CPUs=4 Gres=gpu:4 State=UNKNOWN
NodeName=n2 NodeHostname=slurmhost NodeAddr=10.214.0.1 Port=17002 CPUs=4 Gres=gpu:4 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def why_no_slurm() -> str | None:
    """What is missing here, or None."""
    paths = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=paths) is None]
    return why_not() or (f"not installed: {', '.join(missing)}" if missing else None)


class Slurm:
    """The cluster; a context manager."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="merge-bench-slurm-"))
        self.namespaces: Namespaces | None = None

    def __enter__(self) -> Slurm:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process, and delete the files."""
        if self.namespaces is not None:
            self.namespaces.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *command: str, text: str | None = None, seconds: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a command as a user of the cluster would."""
        assert self.namespaces is not None
        inside = ["nsenter", f"--target={self.namespaces.pid}", "--net", "--pid", "--mount", "--uts"]
        mine = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which jobs would inherit
        environment = {**mine, "SLURM_CONF": f"{self.folder}/slurm.conf"}
        return subprocess.run(
            [*inside, f"--wd={os.getcwd()}", *command],
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _start(self) -> None:
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.214.0.1 slurmhost n1 n2\n")
        (self.folder / "slurm.conf").write_text(CONFIG.format(folder=self.folder))
        for number in range(4):  # what SLURM counts as a GPU is a file
            (self.folder / f"gpu{number}").touch()
        (self.folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={self.folder}/gpu[0-3]\n")
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(64))
        (self.folder / "munge.key").chmod(0o400)
        self.namespaces = Namespaces(
            ["--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"],
            SCRIPT,
            [str(self.folder)],
            self.folder / "all.log",
            forks=True,
        )
        for _ in patience("both nodes of SLURM to be idle", 30):
            states = self.run("sinfo", "--noheader", "--Node", "--format=%T").stdout.split()
            if states == ["idle", "idle"]:
                return
