"""What the user asked for, as it was typed, and what can be seen of each word for itself.

Light to import: a command line that can't be a plan is refused before anything heavy is loaded
(``refuse_quickly``), and everything that is wrong with it is told at once. What makes a plan of a
request is harness/run/planning.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from shalott.cluster.ssh.inventory import SshFlags, read_hosts
from shalott.cluster.systems.record import SYSTEMS, TOGETHER, Profile, SystemRecord
from shalott.core.complaints import Complaints
from shalott.core.errors import UsageError
from shalott.core.plan import PowerLoss, SshPlan
from shalott.core.quantities import parse_duration_ms
from shalott.harness.report.stories.names import STORY_NAMES
from shalott.harness.run.backends import BACKENDS, check_world, choose_backend
from shalott.nemesis.record import check_nemesis, usual_nemeses
from shalott.nemesis.trigger_words import parse_trigger

STORE = Path("store")  # where runs are kept, if nobody says
Delivery = Literal["at-least-once", "at-most-once", "exactly-once"]
POWER_LOSSES: tuple[PowerLoss, ...] = ("keep", "drop", "torn")
DELIVERIES = ("at-least-once", "at-most-once", "exactly-once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``shalott test``'s flags, a field for each with its default; times as users write them.

    ``given``: the flags of the workload's and of the system's own parameters, by name, as typed.
    """

    workload: str = ""  # "": the system's own
    system: str = "mirrored"
    profile: str = "upstream"
    cluster: str = "auto"
    nodes: str = "3"
    layout: str = TOGETHER
    concurrency: str = "2n"
    rate: float = 200.0
    time_limit: str = "60"
    op_timeout: str = "5"
    nemesis: str = "partition,kill"
    nemesis_interval: str = "15"
    nemesis_duration: str = "8"
    targets: str = "one"
    trigger: tuple[str, ...] = ()
    upgrade_to: str = ""
    policy: tuple[str, ...] = ()
    bug: tuple[str, ...] = ()
    delivery: str = "at-least-once"
    max_rto: str = ""
    min_acked: int = 50
    min_rate_share: float | None = None
    seed: int | None = None
    name: str = ""
    leave_db_running: bool = False
    ssh_hosts: str = ""
    ssh_inventory: str = ""
    ssh_user: str = ""
    ssh_key: str = ""
    ssh_port: int = 0
    ssh_jump: str = ""
    ssh_sudo: bool = False
    ssh_known_hosts: str = ""
    ssh_set_time: bool = False
    ssh_lease: str = "20"
    power_loss: str = ""
    given: Mapping[str, str | bool] = field(default_factory=dict)
    scenario: str = ""  # a story to bring about, and to look for (harness/report/stories)


def complaints_about(request: Request) -> Complaints:
    """What can be seen to be wrong of each flag for itself, but for the workload's."""
    wrong = Complaints()
    system = None
    with wrong.gathered():
        system = SYSTEMS.find(request.system)
    durations = {
        "time-limit": request.time_limit,
        "op-timeout": request.op_timeout,
        "nemesis-interval": request.nemesis_interval,
        "nemesis-duration": request.nemesis_duration,
        "max-rto": request.max_rto or "1s",
    }
    checks: list[Callable[[], object]] = [
        partial(one_of, "cluster", request.cluster, BACKENDS),
        partial(one_of, "delivery", request.delivery, DELIVERIES),
        *(
            partial(one_of, "power-loss", each, POWER_LOSSES)
            for each in [request.power_loss]
            if each
        ),
        partial(parse_nodes, request.nodes),
        partial(parse_concurrency, request.concurrency, 1),
        partial(parse_nemeses, request.nemesis),
        partial(parse_policy, request.policy),
        *(partial(parse_trigger, text) for text in request.trigger),
        *(partial(one_of, "scenario", each, STORY_NAMES) for each in [request.scenario] if each),
        *(partial(parse_duration_ms, f"--{flag}", text) for flag, text in durations.items()),
        partial(hosts_asked_for, request),
    ]
    if system is not None:
        checks.append(partial(profile_of, system, request.profile))
        checks.append(partial(check_world, request.cluster, system.name))
    for check in checks:
        with wrong.gathered():
            check()
    return wrong


def hosts_asked_for(request: Request) -> SshPlan | None:
    """The hosts of ``--cluster ssh``, None for other clusters. Raises UsageError."""
    asked = SshFlags(
        hosts=request.ssh_hosts,
        inventory=request.ssh_inventory,
        user=request.ssh_user,
        key=request.ssh_key,
        port=request.ssh_port,
        jump=request.ssh_jump,
        sudo=request.ssh_sudo,
        known_hosts=request.ssh_known_hosts,
        set_time=request.ssh_set_time,
    )
    if request.cluster != "ssh":
        if asked != SshFlags():
            raise UsageError("hosts are for --cluster ssh: add it, or leave out the flags --ssh-*")
        return None
    return read_hosts(asked, parse_duration_ms("--ssh-lease", request.ssh_lease) / 1000)


def refuse_quickly(arguments: Sequence[str]) -> None:
    """Refuse ``shalott test ARGUMENTS`` before anything heavy is imported, if it can be seen that
    it is none. Says nothing of flags that it does not know: typer will.

    Raises UsageError with all that is wrong.
    """
    if "--plan" in arguments or "--help" in arguments:
        return
    request = _as_typed(arguments)
    wrong = complaints_about(request)
    with wrong.gathered():
        _check_engine(request)
    wrong.tell()


def _as_typed(arguments: Sequence[str]) -> Request:
    """The flags with values among the arguments; the last one of a name counts."""
    fields = {f"--{each.name.replace('_', '-')}": each for each in dataclasses.fields(Request)}
    typed: dict[str, Any] = {}
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if not equals:
            value = "".join(arguments[place + 1 : place + 2])
        each = fields.get(name)
        if each is not None and isinstance(each.default, str):
            typed[each.name] = value
        elif name in ("--policy", "--trigger"):
            typed[name[2:]] = (*typed.get(name[2:], ()), value)
    return Request(**typed)


def _check_engine(request: Request) -> None:
    """Where containers are asked for and nobody listens at the engine's socket. Whoever listens is
    asked later: that takes longer."""
    if not SYSTEMS.has(request.system):
        return
    worlds = SYSTEMS.find(request.system).worlds
    needed = request.cluster == "docker" and "docker" in worlds
    others = [each for each in worlds if each not in ("docker", "ssh")]
    if not needed and (request.cluster != "auto" or others):
        return
    from shalott.cluster.docker.reachable import socket_obstacle

    if socket_obstacle() is not None:
        choose_backend(request.cluster, request.system)


def profile_of(system: SystemRecord, name: str) -> Profile:
    """Raises UsageError, naming the known ones."""
    one_of("profile", name, tuple(system.profiles))
    return system.profiles[name]


def parse_nodes(text: str) -> tuple[str, ...]:
    """Names separated by commas, or how many: n1, n2, ..."""
    if text.isdigit():
        if int(text) < 1:
            raise UsageError("a cluster needs at least one node")
        return tuple(f"n{number}" for number in range(1, int(text) + 1))
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
            raise UsageError(
                f"--nodes {text}: {name!r} can't name a node; use a count, or names of lower-case"
                " letters, digits and '-', separated by commas"
            )
    if len(set(names)) != len(names):
        raise UsageError(f"--nodes {text}: a cluster needs nodes with different names")
    return names


def parse_concurrency(text: str, node_count: int) -> int:
    """A number, or a number of clients for each node: 2n."""
    found = re.fullmatch(r"(\d+)(n?)", text)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"--concurrency {text}: give a number of clients, such as 6 or 2n")
    return int(found[1]) * (node_count if found[2] else 1)


def parse_nemeses(text: str) -> tuple[str, ...]:
    """Names separated by commas, none, or all."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if names == ("all",):
        return usual_nemeses()
    for name in names:
        check_nemesis(name, "none", "all")
    return tuple(name for name in names if name != "none")


def parse_policy(settings: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE, the value as JSON if it is JSON, else as text; KEY= takes the key away."""
    policy: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--policy {setting}: give KEY=VALUE, such as ha-sync-mode=automatic")
        try:
            policy[key] = msgspec.json.decode(value) if value else None
        except msgspec.DecodeError:
            policy[key] = value
    return policy


def read_tags(words: Sequence[str]) -> dict[str, str]:
    """``--tag KEY=VALUE``. Raises UsageError."""
    tags = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise UsageError(f"--tag {word}: give KEY=VALUE")
        tags[key] = value
    return tags


def one_of(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise UsageError(f"unknown {what} {name}: choose one of {', '.join(known)}")
