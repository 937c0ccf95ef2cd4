"""Several hosts with a real network between them, on one machine, for tests and benchmarks.

Each host is a process tree with its own network, IPC, UTS, PID and mount namespaces: its own hostname, its own sshd
with its own host key, and one interface, `eth0`, that hangs on a bridge. The bridge lies in a namespace of its own,
which is also where the driver runs. Both ends of every link are shaped. Nothing has a name outside: the namespaces
live as long as their processes, and these die with the process that made them, however it ends.

By hand: `python tests/hosts/make_hosts.py --hosts 4 --rate 2gbit -- COMMAND…` runs COMMAND where it reaches the hosts,
with the words HOSTS and SSH_CONFIG replaced by the paths of both files. Without COMMAND it is a shell.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

NEEDED = ("ip", "tc", "unshare", "nsenter", "sshd", "ssh", "ssh-keygen", "mount")
BURST = "1mb"  # above rate ÷ the kernel's timer frequency, or tbf cannot keep the rate
SUBNET = "10.213.0"
SWITCH = 254  # its number among the addresses
SWITCH_ADDRESS = f"{SUBNET}.{SWITCH}"
HOST_SCRIPT = """
mount --bind "$1/hosts" /etc/hosts
mount -t tmpfs tmpfs /run && mkdir -p /run/sshd
mount -t tmpfs tmpfs /dev/shm
mount -t sysfs sysfs /sys
for control in cubic reno; do sysctl -qw net.ipv4.tcp_congestion_control=$control 2>/dev/null && break; done
hostname "$2"
read go
exec "$3" -D -e -f "$1/$2.sshd" </dev/null
"""
SWITCH_SCRIPT = 'mount --bind "$1/hosts" /etc/hosts; mount -t sysfs sysfs /sys; read go; exec sleep infinity'


def why_not() -> str | None:
    """What is missing here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    paths = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=paths) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Namespaces:
    """A process whose only task is to hold namespaces; `pid` is one that lives in all of them."""

    def __init__(self, unshared: Sequence[str], script: str, arguments: Sequence[str], log: Path, *, forks: bool):
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                ["unshare", *unshared, "sh", "-ec", script, "sh", *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent,
                start_new_session=True,
            )
        self.log = log
        self.pid = self._child() if forks else self._unshared()

    def _unshared(self) -> int:
        own = os.readlink("/proc/self/ns/net")
        for _ in patience("the process to have its namespaces"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{self.process.pid}/ns/net") != own:
                    return self.process.pid
        raise AssertionError

    def _child(self) -> int:
        for _ in patience("the host's first process"):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            if children:
                return int(children[0])
        raise AssertionError

    def go(self) -> None:
        """Let the script's `read` return."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def enter(self, *command: str, mount: bool = True) -> list[str]:
        """The command line that runs `command` in the network (and mount) namespace."""
        return [
            "nsenter",
            f"--target={self.pid}",
            "--net",
            *(["--mount", f"--wd={os.getcwd()}"] if mount else []),
            *command,
        ]

    def end(self) -> None:
        """End the processes; the namespaces go with them."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Host:
    """One host: its name, its address, and how to look into it."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"node{number}"
        self.number = number
        self.address = f"{SUBNET}.{number}"
        self.folder = folder
        self.namespaces: Namespaces | None = None

    def processes(self) -> dict[int, str]:
        """Command lines of all processes in this host's PID namespace beside sshd, by their id outside."""
        assert self.namespaces is not None
        here = os.readlink(f"/proc/{self.namespaces.pid}/ns/pid")
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.namespaces.pid:
                continue
            with contextlib.suppress(OSError):
                if (
                    os.readlink(entry / "ns/pid") != here
                    or (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
                ):
                    continue
                shown = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if not shown.startswith("sshd:"):
                    found[int(entry.name)] = shown
        return found

    def inside(self, *command: str) -> str:
        """The output of a command that runs in this host's network and mount namespaces."""
        assert self.namespaces is not None
        return subprocess.run(
            self.namespaces.enter(*command), check=True, capture_output=True, text=True, timeout=30
        ).stdout


class Hosts:
    """All hosts and the switch; a context manager.

    `rate`: of every link in each direction, as tc writes it; None: not shaped. `environment`: per host name, variables
    that its sshd gives to every session.
    """

    def __init__(
        self, count: int, rate: str | None = "2gbit", environment: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="merge-bench-hosts-"))
        self.rate = rate
        self.environment = environment or {}
        self.hosts = [Host(number, self.folder) for number in range(1, count + 1)]
        self.switch: Namespaces | None = None
        self.drivers: list[subprocess.Popen[str]] = []

    @property
    def hosts_file(self) -> Path:
        """One host a line."""
        return self.folder / "hosts.txt"

    @property
    def ssh_config(self) -> Path:
        """A client configuration with the key and the known hosts that were made for these hosts."""
        return self.folder / "ssh_config"

    def __enter__(self) -> Hosts:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every host and the switch, and delete the keys."""
        for host in self.hosts:
            if host.namespaces is not None:
                host.namespaces.end()
        if self.switch is not None:
            self.switch.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *command: str) -> list[str]:
        """The command line that runs `command` where it reaches the hosts."""
        assert self.switch is not None
        return self.switch.enter(*command)

    def write_hosts(self, lines: Sequence[str], name: str = "hosts.txt") -> Path:
        """A hosts file with these lines."""
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        return path

    def shape(self, host: Host, rate: str, *, burst: str = BURST) -> None:
        """Change the rate of a host's link, both directions."""
        assert self.switch is not None
        assert host.namespaces is not None
        arguments = ["root", "tbf", "rate", rate, "burst", burst, "latency", "100ms"]
        _run(self.switch.enter("tc", "qdisc", "replace", "dev", f"port{host.number}", *arguments, mount=False))
        _run(host.namespaces.enter("tc", "qdisc", "replace", "dev", "eth0", *arguments, mount=False))

    def cut(self, host: Host) -> None:
        """Take a host's link down, at the switch's end."""
        assert self.switch is not None
        _run(self.switch.enter("ip", "link", "set", f"port{host.number}", "down", mount=False))

    def join(self, host: Host) -> None:
        """Take it up again."""
        assert self.switch is not None
        _run(self.switch.enter("ip", "link", "set", f"port{host.number}", "up", mount=False))

    def left_over(self, patience: float = 0.0) -> dict[str, list[str]]:
        """Command lines of processes on the hosts, after waiting at most so many seconds for there to be none."""
        deadline = time.monotonic() + patience
        while True:
            found = {host.name: list(shown.values()) for host in self.hosts if (shown := host.processes())}
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def _start(self) -> None:
        paths = os.environ["PATH"].split(":")
        os.environ["PATH"] = ":".join([*paths, *(p for p in ("/usr/sbin", "/sbin") if p not in paths)])
        self._write_files()
        self.switch = Namespaces(
            ["--net", "--mount"], SWITCH_SCRIPT, [str(self.folder)], self.folder / "switch.log", forks=False
        )
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        for host in self.hosts:
            host.namespaces = Namespaces(
                ["--net", "--ipc", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"],
                HOST_SCRIPT,
                [str(self.folder), host.name, sshd],
                self.folder / f"{host.name}.log",
                forks=True,
            )
        self._wire()
        self.switch.go()
        for host in self.hosts:
            assert host.namespaces is not None
            host.namespaces.go()
        for host in self.hosts:
            for _ in patience(f"sshd of {host.name}"):
                if "Server listening" in (self.folder / f"{host.name}.log").read_text():
                    break

    def _wire(self) -> None:
        assert self.switch is not None
        lines = [
            "link set lo up",
            f"link add br0 address {_link_address(SWITCH)} type bridge",
            "link set br0 up",
            f"address add {SWITCH_ADDRESS}/24 dev br0",
        ]
        for host in self.hosts:
            assert host.namespaces is not None
            port = f"port{host.number}"
            peer = f"name eth0 address {_link_address(host.number)} netns {host.namespaces.pid}"
            lines.append(f"link add {port} type veth peer {peer}")
            lines.append(f"link set {port} master br0 up")
        lines += self._neighbours(SWITCH, "br0")
        _run(self.switch.enter("ip", "-batch", "-", mount=False), "\n".join(lines))
        for host in self.hosts:
            assert host.namespaces is not None
            inside = [
                "link set lo up",
                f"address add {host.address}/24 brd + dev eth0",
                "link set eth0 up",
                *self._neighbours(host.number, "eth0"),
            ]
            _run(host.namespaces.enter("ip", "-batch", "-", mount=False), "\n".join(inside))
            if self.rate is not None:
                self.shape(host, self.rate)

    def _neighbours(self, own: int, device: str) -> list[str]:
        """All others' link addresses, told instead of asked for.

        The kernel has one table of what was asked for (`gc_thresh3`, 1024 entries) for all namespaces, which all-to-all
        between 32 hosts overflows; entries that are permanent do not count.
        """
        others = [number for number in (*(host.number for host in self.hosts), SWITCH) if number != own]
        return [
            f"neighbour replace {SUBNET}.{number} lladdr {_link_address(number)} dev {device} nud permanent"
            for number in others
        ]

    def _write_files(self) -> None:
        names = [f"{host.address} {host.name}" for host in self.hosts]
        (self.folder / "hosts").write_text(
            "\n".join(["127.0.0.1 localhost", f"{SWITCH_ADDRESS} switch", *names]) + "\n"
        )
        self.write_hosts([host.name for host in self.hosts])
        self._key("client")
        known = []
        for host in self.hosts:
            public = self._key(f"{host.name}.key")
            known.append(f"{host.name},{host.address} {public}")
            scratch = self.folder / f"{host.name}.tmp"  # what a killed process leaves there goes with the hosts
            scratch.mkdir()
            given = {"TMPDIR": str(scratch), **self.environment.get(host.name, {})}
            variables = " ".join(f'{name}="{value}"' for name, value in given.items())
            settings = {
                "Port": "22",
                "ListenAddress": host.address,
                "HostKey": f"{self.folder}/{host.name}.key",
                "AuthorizedKeysFile": f"{self.folder}/client.pub",
                "PidFile": "none",
                "UsePAM": "no",
                "StrictModes": "no",
                "PermitRootLogin": "prohibit-password",
                "PasswordAuthentication": "no",
                "UseDNS": "no",
                "MaxStartups": "100",
                "PrintMotd": "no",
                "SetEnv": variables,
            }
            (self.folder / f"{host.name}.sshd").write_text("".join(f"{k} {v}\n" for k, v in settings.items()))
        (self.folder / "known_hosts").write_text("\n".join(known) + "\n")
        settings = {
            "IdentityFile": f"{self.folder}/client",
            "IdentitiesOnly": "yes",
            "User": "root",
            "UserKnownHostsFile": f"{self.folder}/known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
        }
        self.ssh_config.write_text("Host *\n" + "".join(f"  {k} {v}\n" for k, v in settings.items()))

    def _key(self, name: str) -> str:
        path = self.folder / name
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "merge-bench-test", "-f", str(path)])
        return " ".join(path.with_name(path.name + ".pub").read_text().split()[:2])


def _link_address(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"  # locally administered


def _run(command: Sequence[str], text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def patience(what: str, seconds: float = 20.0) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield None
        time.sleep(0.01)
    raise TimeoutError(f"waited {seconds:.0f} s for {what}")


def main() -> int:
    """Make hosts, run a command, take them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", default="2gbit", help="of each link and direction, as tc writes it; none: not shaped")
    parser.add_argument("command", nargs="*", default=[os.environ.get("SHELL", "sh")])
    arguments = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"make_hosts: {reason}", file=sys.stderr)
        return 2

    def leave(number: int, _: Any) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    with Hosts(arguments.hosts, None if arguments.rate == "none" else arguments.rate) as hosts:
        words = {"HOSTS": str(hosts.hosts_file), "SSH_CONFIG": str(hosts.ssh_config)}
        print(f"make_hosts: {hosts.hosts_file}, {hosts.ssh_config}", file=sys.stderr)
        return subprocess.run(hosts.command(*(words.get(word, word) for word in arguments.command))).returncode


if __name__ == "__main__":
    sys.exit(main())
