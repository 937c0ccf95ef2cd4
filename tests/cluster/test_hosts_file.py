"""Hosts as people list them for mpirun, SLURM, pdsh and Ansible: accepted, or refused with a remedy."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merge_bench.cluster.hosts import MOST_HOSTS, HostSpec, parse_hosts_line, read_hosts_file
from merge_bench.errors import UsageError


def read(folder: Path, text: str | bytes) -> tuple[HostSpec, ...]:
    path = folder / "hosts.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_hosts_file(path)


def counted(found: tuple[HostSpec, ...]) -> list[tuple[str, int | None]]:
    return [(host.name, host.slots) for host in found]


def test_names_slots_gpus_users_addresses_and_comments(tmp_path: Path) -> None:
    text = "# ours\nnode1 gpus=4\nme@node2 slots=2  # half\n\n10.0.0.3\n[fe80::1]\nmy_node.\n"
    assert read(tmp_path, text) == (
        HostSpec("node1", gpus=4),
        HostSpec("me@node2", slots=2),
        HostSpec("10.0.0.3"),
        HostSpec("fe80::1"),
        HostSpec("my_node."),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1:4\nnode2:2\n", [("node1", 4), ("node2", 2)]),  # MPICH, and mpirun -H
        ("node1 slots = 4\n", [("node1", 4)]),
        ("Node1 SLOTS=4 Max-Slots=8\n", [("Node1", 4)]),
        ("node1 slots=8 max_slots=8\n", [("node1", 8)]),
        ("node1\nnode1\nnode2\n", [("node1", 2), ("node2", None)]),  # a slot each time, as mpirun
        ("node1 slots=3\nnode1\nnode1:2\n", [("node1", 6)]),
        ("node1,node2 , node1\n", [("node1", 2), ("node2", None)]),
        ("node1:2,node2:3\n", [("node1", 2), ("node2", 3)]),
        ("node[01-03,07]\n", [(f"node{n}", None) for n in ("01", "02", "03", "07")]),
        ("node[1-2],gpu-a[1-2] slots=2\n", [("node1", 2), ("node2", 2), ("gpu-a1", 2), ("gpu-a2", 2)]),
        ("r[1-2]n[08-10]-ib:2\n", [(f"r{r}n{n}-ib", 2) for r in (1, 2) for n in ("08", "09", "10")]),
        ("me@node[1-2]\n", [("me@node1", None), ("me@node2", None)]),
        ("fd00::1\n[fd00::2]\nfe80::1%eth0\n", [("fd00::1", None), ("fd00::2", None), ("fe80::1%eth0", None)]),
        ("fd00::1\n[fd00:0::1]\n", [("fd00::1", 2)]),
        (b"\xef\xbb\xbfnode1\r\nnode2\r\n", [("node1", None), ("node2", None)]),
        (b"node1\rnode2\r", [("node1", None), ("node2", None)]),
    ],
)
def test_lists_of_other_programs(tmp_path: Path, text: str | bytes, expected: list[tuple[str, int | None]]) -> None:
    assert counted(read(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-oProxyCommand=true\n", "hosts.txt:1: '-oProxyCommand=true' is not a host name"),
        ("a\n$(reboot)\n", "hosts.txt:2: '$(reboot)' is not a host name"),
        ("a;b\n", "is not a host name"),
        ("me@-oProxyCommand=x\n", "is not a host name"),
        ("n\u00f6de1\n", "is not a host name"),
        ("a slots=0\n", "'slots=0' is not valid"),
        ("a:0\n", "'a:0' is not a host name"),
        ("a cores=3\n", "'cores=3' is not valid"),
        ("a slots 3\n", "'slots' is not valid"),
        ("a slots=9 max_slots=8\n", "slots=9 is more than max_slots=8"),
        ("a:2 slots=2\n", "both give a number of slots"),
        ("a gpus=2\na gpus=2\n", "hosts.txt:2: a is listed twice with gpus="),
        ("alice@node1:2222\n", "write alice@node1 slots=2222, or, for a port, name the user, port or address"),
        ("[fd00::1]:22\n", "write fd00::1 slots=22"),
        ("node[1-\n", "has no closing bracket"),
        ("node[4-1]\n", "[4-1] is no range of numbers"),
        ("node[a-c]\n", "[a-c] is no range of numbers"),
        ("node[1-5000]\n", "names more than 4,096 hosts"),
        ("a[1-3000],b[1-3000]\n", "lists more than 4,096 hosts"),
        ("a,,b\n", "contains an empty name"),
        ("node1 node2\n", "more than one name"),
        ("[gpu]\nnode1\n", "hosts.txt:1: '[gpu]' is in the form of Ansible's inventory"),
        ("node1 ansible_host=10.0.0.1\n", "Ansible's inventory"),
        ("10.0.0.1 node1\n", "/etc/hosts; write 10.0.0.1 or node1 alone"),
        ("fd00::1 node1 node1.example.org\n", "/etc/hosts; write fd00::1 or node1 alone"),
        ("# nothing\n", "the file lists no host"),
        ("node1\n".encode("utf-16"), "not text in UTF-8"),
    ],
)
def test_mistakes_and_other_formats_are_named_with_a_remedy(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        ("node1", "NODE1"),
        ("node1", "node1."),
        ("node1", "node1.example.org"),
        ("node1.example.org", "node1"),
        ("localhost", "127.0.0.1"),
        ("127.0.0.2", "::1"),
        ("localhost", socket.gethostname()),
        ("me@node1", "node1"),
    ],
)
def test_one_host_by_two_names_is_refused_with_both(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "\n".join(["other", *names]))
    assert "are names of one host" in str(caught.value)
    assert "hosts.txt:3" in str(caught.value)


def test_hosts_of_two_domains_and_scopes_are_different_hosts(tmp_path: Path) -> None:
    names = ["n1.a.org", "n1.b.org", "fe80::1%eth0", "fe80::1%eth1", "n11.a.org", "n11.b.org"]
    assert [host.name for host in read(tmp_path, "\n".join(names))] == names


def test_a_thousand_lines_and_a_list_given_in_place_of_the_file(tmp_path: Path) -> None:
    assert len(read(tmp_path, "".join(f"n{number}\n" for number in range(1000)))) == 1000
    assert len(read(tmp_path, f"n[1-{MOST_HOSTS}]\n")) == MOST_HOSTS
    with pytest.raises(UsageError, match="takes the path of a file: write one host per line"):
        read_hosts_file(Path("node1,node2"))


@st.composite
def host_lists(draw: st.DrawFn, ends: Sequence[str] = ("", "-ib", "x")) -> tuple[str, list[str]]:
    """A list in the syntax of SLURM and pdsh, and its names; `ends`: what may follow a bracket."""
    texts, names = [], []
    for _ in range(draw(st.integers(1, 3))):
        stem = draw(st.from_regex(r"[a-z][a-z0-9-]{0,3}[a-z]", fullmatch=True))
        pieces, choices = [stem], [[stem]]
        for _ in range(draw(st.integers(0, 2))):
            parts, numbers = [], []
            for _ in range(draw(st.integers(1, 3))):
                width, first = draw(st.integers(1, 4)), draw(st.integers(0, 120))
                last = first + draw(st.integers(0, 12))
                parts.append(f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else ""))
                numbers += [f"{number:0{width}d}" for number in range(first, last + 1)]
            end = draw(st.sampled_from(ends))
            pieces += [f"[{','.join(parts)}]", end]
            choices += [numbers, [end]]
        texts.append("".join(pieces))
        names += ["".join(each) for each in product(*choices)]
    return ",".join(texts), names


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(host_lists())
def test_a_host_list_expands_to_its_names(made: tuple[str, list[str]]) -> None:
    text, names = made
    assert [host.name for host in parse_hosts_line(text)] == names


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs SLURM's scontrol (Debian: slurm-wlm)")
def test_slurm_expands_a_host_list_to_the_same_names(tmp_path: Path) -> None:
    config = tmp_path / "slurm.conf"
    config.write_text("ClusterName=test\nSlurmctldHost=localhost\nSlurmUser=root\nNodeName=n1\n")

    @settings(max_examples=10, deadline=None)
    @given(host_lists(ends=("",)))  # SLURM accepts nothing behind the last bracket
    def check(made: tuple[str, list[str]]) -> None:
        asked = ["scontrol", "show", "hostnames", made[0]]
        environ = {**os.environ, "SLURM_CONF": str(config)}
        done = subprocess.run(asked, env=environ, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        assert [host.name for host in parse_hosts_line(made[0])] == done.stdout.split()

    check()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node1 slots=5000", "more than 4,096"),
        ("node1 slots=" + "9" * 5000, "is not valid"),
        ("node1:" + "9" * 5000, "is not a host name"),
        ("n[" + "9" * 5000 + "]", "is no range of numbers"),
        ("n" + "[1]" * 3000, "more than 8 brackets"),
        (
            "n[1,1,1,1,1,1,1,1][1,1,1,1,1,1,1,1][1,1,1,1,1,1,1,1][1,1,1,1,1,1,1,1][1,1,1,1,1,1,1,1][1,1,1]",
            "65,536 names",
        ),
    ],
)
def test_what_is_far_too_large_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(words)):
        read_hosts_file(file)


def test_many_short_names_that_are_listed_again_take_no_longer_than_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("n[1-4000]\n" * 10)
    begun = time.process_time()
    assert {host.slots for host in read_hosts_file(file)} == {10}
    assert time.process_time() - begun < 5.0
