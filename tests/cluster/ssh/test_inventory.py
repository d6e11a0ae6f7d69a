"""Hosts from flags and from files, and every mistake in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.cluster.ssh.inventory import SshFlags, check_hosts, read_hosts
from shalott.core.errors import UsageError
from shalott.core.plan import HostPlan
from shalott.harness.run.planning import make_plan, repeat_command
from shalott.harness.run.request import Request

pytestmark = pytest.mark.unit

INVENTORY = """
user = "shalott"
sudo = true
key = "keys/id"
[hosts.a]
address = "192.0.2.11"
inner = "10.0.0.11"
[hosts."192.0.2.12"]
port = 2222
sudo = false
"""


def test_hosts_from_flags() -> None:
    flags = SshFlags(hosts="a, root@b:2222,[2001:db8::1]:22", user="me", sudo=True)
    assert read_hosts(flags, 5).hosts == (
        HostPlan(address="a", user="me", sudo=True),
        HostPlan(address="b", port=2222, user="root", sudo=True),
        HostPlan(address="2001:db8::1", user="me", sudo=True),
    )
    assert read_hosts(flags, 5).lease_s == 5


def test_hosts_from_an_inventory(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(INVENTORY)
    own = {"user": "shalott", "key": str(tmp_path / "keys/id")}
    assert read_hosts(SshFlags(inventory=str(path))).hosts == (
        HostPlan(address="192.0.2.11", inner="10.0.0.11", sudo=True, **own),  # type: ignore[arg-type]
        HostPlan(address="192.0.2.12", port=2222, **own),  # type: ignore[arg-type]
    )
    over = SshFlags(inventory=str(path), user="root", key="mine")
    assert {(host.user, host.key) for host in read_hosts(over).hosts} == {("root", "mine")}


@pytest.mark.parametrize(
    ("flags", "lease_s", "sentence"),
    [
        (SshFlags(), 20, "--cluster ssh needs hosts: give --ssh-hosts a,b,c or --ssh-inventory"),
        (SshFlags(hosts="a", inventory="b"), 20, "one of them"),
        (SshFlags(hosts="a,b c"), 20, "'b c' names no host"),
        (SshFlags(hosts="a,b,a"), 20, "the host a is named twice"),
        (SshFlags(hosts="a,b", jump="me@b:22"), 20, "jump through a host that is no node"),
        (SshFlags(hosts="a"), 1, "--ssh-lease 1: give 3 seconds or more"),
        (SshFlags(inventory="absent.toml"), 20, "cannot read the inventory absent.toml: No such"),
    ],
)
def test_a_mistake_in_the_flags(flags: SshFlags, lease_s: float, sentence: str) -> None:
    with pytest.raises(UsageError) as met:
        read_hosts(flags, lease_s)
    assert sentence in str(met.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[hosts", "is no inventory"),
        ("user = 'me'", "there is no host in the inventory"),
        ("hosts = 3", "give a table [hosts.NAME]"),
        ("[hosts.a]\nprot = 22", "host a: Object contains unknown field `prot`"),
        ("[hosts.a]\nport = 'x'", "host a: Expected `int`, got `str`"),
        ("[hosts.a]\ninner = 'b'", "inner = 'b': give an IP address"),
    ],
)
def test_a_mistake_in_an_inventory(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as met:
        read_hosts(SshFlags(inventory=str(path)))
    assert sentence in str(met.value)


def test_each_node_needs_a_host() -> None:
    with pytest.raises(UsageError, match="^3 nodes need 3 hosts, and there are 2: name more"):
        check_hosts((HostPlan(address="a"), HostPlan(address="b")), 3)


def test_the_plan_names_the_hosts_and_the_command_repeats_them() -> None:
    request = Request(
        cluster="ssh", ssh=SshFlags(hosts="a,b,c", sudo=True, set_time=True), ssh_lease="5s"
    )
    plan = make_plan(request, backend="ssh", seed=1)
    assert [host.address for host in plan.cluster.ssh.hosts] == ["a", "b", "c"]  # type: ignore[union-attr]
    assert plan.cluster.ssh.set_time  # type: ignore[union-attr]
    assert "--ssh-hosts a,b,c --ssh-sudo --ssh-set-time --ssh-lease 5s" in repeat_command(
        request, 1
    )


def test_hosts_are_refused_where_they_would_do_nothing() -> None:
    with pytest.raises(UsageError, match="hosts are for --cluster ssh: add it, or leave out"):
        make_plan(Request(cluster="local", ssh=SshFlags(hosts="a,b,c")), backend="local", seed=1)
    with pytest.raises(UsageError, match="--cluster ssh needs hosts"):
        make_plan(Request(cluster="ssh"), backend="ssh", seed=1)
