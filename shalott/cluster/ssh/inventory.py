"""Which hosts there are and how they are reached: an inventory file, or flags of the command line.

An inventory is TOML, a table for each host in the order of the nodes, with the fields of
``HostPlan``; what stands before the first table is said of all hosts:

    user = "shalott"
    sudo = true
    [hosts.a]
    address = "192.0.2.11"
    [hosts.b]
    address = "192.0.2.12"
    port = 2222

Relative paths of keys and of known_hosts are relative to the inventory.
"""

from __future__ import annotations

import getpass
import ipaddress
import re
import socket
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from shalott.core.command_options import Option
from shalott.core.errors import UsageError
from shalott.core.plan import HostPlan, SshPlan

WHERE = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<address>\[[^\]]+\]|[^:\s]+)(?::(?P<port>\d+))?")
LEAST_LEASE_S = 3.0
PATHS = ("key", "known_hosts")
HOSTS_PANEL = "Hosts over SSH"  # of --help


def _option(text: str) -> Option:
    return Option(text, panel=HOSTS_PANEL, shows_default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshFlags:
    """The flags of the command line, "" where nothing was said. ``hosts``: addresses separated by
    commas, each perhaps user@address:port; ``inventory``: a file instead."""

    hosts: Annotated[
        str, _option("Hosts a,b,c: each an address, user@address or address:port.")
    ] = ""
    inventory: Annotated[
        str, _option("A file of hosts instead: docs/how-to/run-on-your-hosts.md.")
    ] = ""
    user: Annotated[str, _option("Who logs in; else who runs this.")] = ""
    key: Annotated[str, _option("A private key; else those of the agent and of ~/.ssh.")] = ""
    port: Annotated[int, _option("Of all hosts; else 22.")] = 0
    jump: Annotated[str, _option("Go through this host: user@address:port.")] = ""
    sudo: Annotated[bool, _option("Cut links as root, by sudo without a password.")] = False
    known_hosts: Annotated[str, _option("Where the hosts' keys are; else ~/.ssh/known_hosts.")] = ""
    set_time: Annotated[
        bool, _option("Faults may set the hosts' own clocks, where libfaketime can't do.")
    ] = False


def read_hosts(flags: SshFlags, lease_s: float = 20.0) -> SshPlan:
    """The hosts that the flags name. Raises UsageError with one sentence that says what to do."""
    if bool(flags.hosts) == bool(flags.inventory):
        raise UsageError(
            "--cluster ssh needs hosts: give --ssh-hosts a,b,c or --ssh-inventory FILE, one of them"
        )
    if lease_s < LEAST_LEASE_S:
        raise UsageError(f"--ssh-lease {lease_s:g}: give {LEAST_LEASE_S:g} seconds or more")
    said: dict[str, object] = {
        name: getattr(flags, name)
        for name in ("user", "key", "port", "jump", "sudo", "known_hosts")
        if getattr(flags, name)
    }
    if flags.inventory:
        hosts = tuple(_from_inventory(Path(flags.inventory), said))
    else:
        hosts = tuple(_from_word(word.strip(), said) for word in flags.hosts.split(","))
    check_hosts(hosts, 1)
    return SshPlan(hosts=hosts, lease_s=lease_s, set_time=flags.set_time)


def check_hosts(hosts: Sequence[HostPlan], nodes: int) -> None:
    """Raises UsageError: too few hosts, one host twice, or a node that others are reached
    through."""
    if not hosts:
        raise UsageError("there is no host in the inventory: give a table [hosts.NAME] for each")
    if len(hosts) < nodes:
        raise UsageError(
            f"{nodes} nodes need {nodes} hosts, and there are {len(hosts)}: name more hosts, or"
            f" use --nodes {len(hosts)}"
        )
    places = [(host.address, host.port) for host in hosts]
    for place in places:
        if places.count(place) > 1:
            raise UsageError(f"the host {place[0]} is named twice: each node needs one of its own")
    for host in hosts:
        if host.jump and parse_where(host.jump)[1] in [each.address for each in hosts]:
            raise UsageError(
                f"{host.address} is reached through {host.jump}, which is to be a node itself:"
                " a cut would hit the harness; jump through a host that is no node"
            )
        if host.inner:
            _check_address(host.inner)


def parse_where(text: str) -> tuple[str, str, int]:
    """(user, address, port) of user@address:port; "" and 0 where nothing is said."""
    found = WHERE.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} names no host: write address, user@address or address:port")
    return found["user"] or "", found["address"].strip("[]"), int(found["port"] or 0)


def user_of(host: HostPlan) -> str:
    return host.user or getpass.getuser()


def title_of(host: HostPlan) -> str:
    """As sentences name it."""
    return host.address if host.port == 22 else f"{host.address}:{host.port}"


def resolve(host: HostPlan) -> str:
    """The address of a host as the nodes dial it. Raises UsageError."""
    try:
        return str(ipaddress.ip_address(host.address))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"{host.address} has no address that this machine knows ({error.strerror}): say in the"
            " inventory at which the nodes reach it (inner)"
        ) from error
    return str(found[0][4][0])


def _from_word(word: str, said: Mapping[str, object]) -> HostPlan:
    user, address, port = parse_where(word)
    own = {"user": user, "port": port}
    given = {**said, **{name: value for name, value in own.items() if value}, "address": address}
    return msgspec.convert(given, HostPlan)


def _from_inventory(path: Path, said: Mapping[str, object]) -> list[HostPlan]:
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"cannot read the inventory {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no inventory: {error}") from error
    hosts = tables.pop("hosts", {})
    if not isinstance(hosts, dict) or not all(isinstance(own, dict) for own in hosts.values()):
        raise UsageError(f"{path} is no inventory: give a table [hosts.NAME] for each host")
    found = []
    for name, own in hosts.items():
        fields = {"address": name, **tables, **own, **said}
        for each in PATHS:
            if each in fields and each not in said:
                fields[each] = str(path.parent / Path(str(fields[each])).expanduser())
        try:
            found.append(msgspec.convert(fields, HostPlan))
        except msgspec.ValidationError as error:
            raise UsageError(f"{path}: host {name}: {error}") from error
    return found


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise UsageError(f"inner = {text!r}: give an IP address") from None
