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
from typing import Annotated, Any, Literal

import msgspec

from shalott.cluster.docker.reachable import socket_obstacle
from shalott.cluster.ssh.inventory import HOSTS_PANEL, SshFlags, read_hosts
from shalott.cluster.systems.record import SYSTEMS, TOGETHER, Profile, SystemRecord
from shalott.core.command_options import Option, Prefixed
from shalott.core.errors import Complaints, UsageError
from shalott.core.json_value import Json
from shalott.core.parameters import parse_duration_ms
from shalott.core.plan import PowerLoss, SshPlan
from shalott.harness.report.meta import STORY_NAMES
from shalott.harness.run.backends import BACKENDS, check_world, choose_backend
from shalott.nemesis.fault_words import parse_fault
from shalott.nemesis.record import check_nemesis, usual_nemeses
from shalott.nemesis.sequence import check_sequence
from shalott.nemesis.trigger_words import parse_trigger

STORE = Path("store")  # where runs are kept by default
RUN, BROKER, FAULTS_PANEL, JUDGE = "The run", "The broker", "The faults", "The verdict"
Delivery = Literal["at-least-once", "at-most-once", "exactly-once"]
POWER_LOSSES: tuple[PowerLoss, ...] = ("keep", "drop", "torn", "all")
DELIVERIES = ("at-least-once", "at-most-once", "exactly-once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``shalott test``'s flags, a field for each with its default; times as users write them.

    ``given``: the flags of the workload's and of the system's own parameters, by name, as typed.
    """

    workload: Annotated[  # "": the system's own
        str, Option("What clients do; else the system's own.", ("--workload", "-w"), RUN)
    ] = ""
    system: Annotated[str, Option("What runs on the nodes.", panel=BROKER)] = "mirrored"
    profile: Annotated[str, Option("upstream or safe; else its first.", panel=BROKER)] = ""
    cluster: Annotated[str, Option("auto, docker, local, ssh or sim.", panel=RUN)] = "auto"
    nodes: Annotated[str, Option("Names n1,n2,n3, or how many.", panel=RUN)] = "3"
    layout: Annotated[
        str, Option("Services on nodes: together, separate, standalone.", panel=BROKER)
    ] = TOGETHER
    concurrency: Annotated[str, Option("Clients; 2n is 2 a node.", panel=RUN)] = "2n"
    rate: Annotated[float, Option("Operations a second.", ("--rate", "-r"), RUN)] = 200.0
    time_limit: Annotated[str, Option("Load for so long: 60, 90s, 2m.", panel=RUN)] = "60"
    op_timeout: Annotated[str, Option("When an answer is given up.", panel=RUN)] = "5"
    nemesis: Annotated[str, Option("a,b of `shalott faults`; none; all.", panel=FAULTS_PANEL)] = (
        "partition,kill"
    )
    nemesis_interval: Annotated[str, Option("From fault to fault.", panel=FAULTS_PANEL)] = "15"
    nemesis_duration: Annotated[str, Option("A fault's length.", panel=FAULTS_PANEL)] = "8"
    targets: Annotated[
        str,
        Option(
            "one, minority, majority, all, master, mirrors, controller, or n1+n2.",
            panel=FAULTS_PANEL,
        ),
    ] = "one"
    trigger: Annotated[
        tuple[str, ...],
        Option("Faults wait for it: master=n2, synchronising, syncs=3, ...", panel=FAULTS_PANEL),
    ] = ()
    sequence: Annotated[
        tuple[str, ...],
        Option("Faults in order: 'pause n1; kill n2; end pause; wait 2s'.", panel=FAULTS_PANEL),
    ] = ()
    fault: Annotated[
        tuple[str, ...],
        Option("KIND:WORD=VALUE,...: amount, target, parameters.", panel=FAULTS_PANEL),
    ] = ()
    upgrade_to: Annotated[
        str, Option("Of rolling-upgrade: an image, or a recipe of one.", panel=FAULTS_PANEL)
    ] = ""
    policy: Annotated[
        tuple[str, ...], Option("KEY=VALUE over the profile's; KEY= drops it.", panel=BROKER)
    ] = ()
    bug: Annotated[
        tuple[str, ...], Option("A historical bug: see `shalott bugs`.", panel=BROKER)
    ] = ()
    delivery: Annotated[str, Option("at-least-once, at-most-once, exactly-once.", panel=JUDGE)] = (
        "at-least-once"
    )
    max_rto: Annotated[str, Option("Longest outage still valid: 30s.", panel=JUDGE)] = ""
    min_acked: Annotated[int, Option("Fewer operations prove nothing.", panel=JUDGE)] = 50
    min_rate_share: Annotated[
        float | None, Option("A smaller share of --rate reached: unknown.", panel=JUDGE)
    ] = None
    reread: Annotated[
        bool, Option("Restart all nodes before the drain: read what disks hold.", panel=JUDGE)
    ] = False
    seed: Annotated[int | None, Option("Decides faults and operations.", panel=RUN)] = None
    name: Annotated[str, Option("Name in the store.", panel=RUN)] = ""
    leave_db_running: Annotated[bool, Option("Keep the nodes.", panel=RUN)] = False
    ssh: Annotated[SshFlags, Prefixed("ssh_")] = SshFlags()
    ssh_lease: Annotated[
        str,
        Option(
            "When a silent harness's hosts undo all.", panel=HOSTS_PANEL, after="leave_db_running"
        ),
    ] = "20"
    power_loss: Annotated[
        str, Option("What becomes of unsynced data: torn, drop, all, keep.", panel=FAULTS_PANEL)
    ] = ""
    given: Mapping[str, str | bool] = field(default_factory=dict)
    scenario: Annotated[  # harness/run/startup_race.py
        str,
        Option(
            "A story to bring about, and to tell: startup-race.", panel=RUN, after="min_rate_share"
        ),
    ] = ""


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
        *(partial(parse_fault, text) for text in request.fault),
        *(partial(check_sequence, text) for text in request.sequence),
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
    if request.cluster != "ssh":
        if request.ssh != SshFlags():
            raise UsageError("hosts are for --cluster ssh: add it, or leave out the flags --ssh-*")
        return None
    return read_hosts(request.ssh, parse_duration_ms("--ssh-lease", request.ssh_lease) / 1000)


def refuse_quickly(arguments: Sequence[str]) -> None:
    """Refuse ``shalott test ARGUMENTS`` before anything heavy is imported, if it can be seen that
    it is none. Says nothing of flags that it does not know: typer will.

    Raises UsageError with all that is wrong.
    """
    if {"--plan", "--help", "--help-all"} & {*arguments}:
        return
    request = _as_typed(arguments)
    wrong = complaints_about(request)
    with wrong.gathered():
        _check_engine(request)
    wrong.tell()


def _as_typed(arguments: Sequence[str]) -> Request:
    """The flags with texts among the arguments; the last one of a name counts."""
    own, of_hosts = _text_flags(Request, "--"), _text_flags(SshFlags, "--ssh-")
    typed: dict[str, Any] = {}
    hosts: dict[str, Any] = {}
    for place, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        if not equals:
            value = "".join(arguments[place + 1 : place + 2])
        if flag in own:
            typed[own[flag]] = value
        elif flag in of_hosts:
            hosts[of_hosts[flag]] = value
        elif flag in ("--policy", "--trigger", "--fault", "--sequence"):
            typed[flag[2:]] = (*typed.get(flag[2:], ()), value)
    return Request(**typed, ssh=SshFlags(**hosts))


def _text_flags(struct: type[Request | SshFlags], prefix: str) -> dict[str, str]:
    """Flag to field."""
    return {
        f"{prefix}{each.name.replace('_', '-')}": each.name
        for each in dataclasses.fields(struct)
        if isinstance(each.default, str)
    }


def _check_engine(request: Request) -> None:
    """Where containers are asked for and no engine listens at its socket. One that listens is asked
    later: that takes longer."""
    if not SYSTEMS.has(request.system):
        return
    worlds = SYSTEMS.find(request.system).worlds
    needed = request.cluster == "docker" and "docker" in worlds
    others = [each for each in worlds if each not in ("docker", "ssh")]
    if not needed and (request.cluster != "auto" or others):
        return
    if socket_obstacle() is not None:
        choose_backend(request.cluster, request.system)


def profile_of(system: SystemRecord, name: str) -> Profile:
    """``name`` "": the first. Raises UsageError, naming the known ones."""
    name = name or next(iter(system.profiles))
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


def parse_policy(settings: Sequence[str]) -> dict[str, Json]:
    """KEY=VALUE, the value as JSON if it is JSON, else as text; KEY= takes the key away."""
    policy: dict[str, Json] = {}
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
