"""``shalott node`` and ``shalott up``: nodes that serve a user's clients, and no run.

They are booted as those of a run are, say where clients connect, and stay until Ctrl-C, a signal
or `shalott clean` ends them in order. ``endpoints.json`` in their directory says to `shalott ctl`
where they listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TextIO
from urllib.parse import quote

import typer

from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import NodeExit, Stays
from shalott.cluster.system import System, ports_of
from shalott.cluster.systems.record import SYSTEMS, TOGETHER
from shalott.core.command_options import Argument, Option
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import Plan
from shalott.core.steps import steps_told
from shalott.harness.cli.near_names import unknown
from shalott.harness.cli.options import LoadField, with_options
from shalott.harness.cli.test import shared_flags
from shalott.harness.run.backends import (
    check_world,
    choose_backend,
    make_cluster,
    make_system,
    staying,
)
from shalott.harness.run.planning import flag_words, make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.stage import BOOT_TIMEOUT_MS
from shalott.harness.run.store import ENDPOINTS
from shalott.harness.run.world import note_endpoints

USER = "guest"  # of every node's configuration, with the same password
WORLDS = ("local", "docker")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130
STOP_TIMEOUT_MS = 20_000
LOCK = "lock"


def add_commands(app: typer.Typer) -> None:
    flags = shared_flags(workloads=False)
    app.command()(with_options(node, flags))
    app.command()(with_options(up, flags))


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What runs, and how it is set up. ``given``: as in Request."""

    system: Annotated[str, Argument("What runs on the nodes: see `shalott systems`.")]
    profile: Annotated[str, Option("upstream or safe; else the system's first.")] = ""
    policy: Annotated[tuple[str, ...], Option("KEY=VALUE over the profile's.")] = ()
    bug: Annotated[tuple[str, ...], Option("A historical bug: see `shalott bugs`.")] = ()
    load: LoadField = ()
    given: Mapping[str, str | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOption:
    data: Annotated[
        Path | None, Option("Where its files stay; else in a directory that goes with it.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    nodes: Annotated[str, Option("How many, or names: n1,n2,n3.")] = "3"
    cluster: Annotated[str, Option("local or docker; else local, if the system runs there.")] = ""
    layout: Annotated[str, Option("Services on nodes: together, separate, standalone.")] = TOGETHER
    detach: Annotated[bool, Option("Return when it is up; `shalott clean` ends it.")] = False


def node(serving: Serving, where: DataOption) -> None:
    """Start one node here and say where clients connect; Ctrl-C ends it in order."""
    plan = plan_of(serving, ClusterOptions(nodes="1", cluster="local"))
    with directory_of(where.data) as directory:
        keep = where.data is not None
        raise typer.Exit(asyncio.run(_stay(plan, directory, Stays(usual_ports=True, keep=keep))))


def up(serving: Serving, wanted: ClusterOptions) -> None:
    """Start a cluster and say where clients connect; Ctrl-C or `shalott clean` ends it."""
    plan = plan_of(serving, wanted)
    if wanted.detach:
        raise typer.Exit(detached(serving, wanted))
    with directory_of(None) as directory:
        raise typer.Exit(asyncio.run(_stay(plan, directory, Stays(usual_ports=True))))


def plan_of(serving: Serving, wanted: ClusterOptions) -> Plan:
    """A plan of nodes without a load. Raises UsageError."""
    if not SYSTEMS.has(serving.system):
        raise unknown("system", serving.system, SYSTEMS.names(), "shalott systems")
    record = SYSTEMS.find(serving.system)
    if wanted.cluster not in ("", *WORLDS):
        raise UsageError(f"--cluster {wanted.cluster}: choose one of {', '.join(WORLDS)}")
    world = wanted.cluster or next((each for each in WORLDS if each in record.worlds), "local")
    check_world(world, record.name)
    choose_backend(world, record.name)
    request = Request(
        system=record.name,
        profile=serving.profile or next(iter(record.profiles)),
        nodes=wanted.nodes,
        layout=wanted.layout,
        policy=serving.policy,
        bug=serving.bug,
        given=serving.given,
        nemesis="none",
    )
    return make_plan(request, backend=world, seed=int.from_bytes(os.urandom(4)))


@contextlib.contextmanager
def directory_of(data: Path | None) -> Iterator[Path]:
    """One that is there, and that no other node uses. Raises UsageError."""
    if data is None:
        place = Path(tempfile.mkdtemp(prefix="shalott-"))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / LOCK).open("w")
    except OSError as error:
        raise UsageError(f"--data {data}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"--data {data}: a node uses it that still runs") from None
        yield data.absolute()


def detached(serving: Serving, wanted: ClusterOptions) -> int:
    """The same command as a process of its own; what it says is passed on until it is up."""
    command = [sys.executable, "-m", "shalott.harness.cli.main", "up", serving.system]
    for each in (*dataclasses.fields(serving), *dataclasses.fields(wanted)):
        holder: object = serving if hasattr(serving, each.name) else wanted
        value = getattr(holder, each.name)
        if each.name not in ("system", "given", "detach") and value != each.default:
            command += flag_words(each.name, value)
    for name, value in serving.given.items():
        command += flag_words(name, value)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    for line in child.stdout:
        typer.echo(line, nl=False, err=line.startswith("shalott: "))
        if line.startswith(ENDS):
            return 0
    return child.wait()


# -- while they run --------------------------------------------------------------------------------


async def _stay(plan: Plan, directory: Path, stays: Stays) -> int:
    """Boot, tell, wait, stop in order; the exit code. Raises HarnessError."""
    name = f"{plan.system.name} of `shalott up`"
    system = make_system(plan)
    cluster = make_cluster(plan, f"up-{os.getpid()}", directory, stays=stays)
    asked = asyncio.Event()
    gone: dict[str, NodeExit] = {}

    def ended(end: NodeExit) -> None:
        gone[end.node] = end
        _say(f"{end.node} ended by itself, with exit code {end.exit_code}.")
        if len(gone) == len(cluster.nodes):
            asked.set()

    cluster.on_exit = ended
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, asked.set)
    with staying(name, directory, is_temporary=not stays.keep), steps_told(_say):
        try:
            booting = asyncio.ensure_future(_boot(cluster, system, directory))
            waiting = asyncio.ensure_future(asked.wait())
            await asyncio.wait((booting, waiting), return_when=asyncio.FIRST_COMPLETED)
            if not booting.done():
                booting.cancel()
                return EXIT_INTERRUPTED
            await booting
            tell(plan, cluster, system, directory, sys.stdout)
            await waiting
            if len(gone) == len(cluster.nodes):
                raise HarnessError(f"no node runs any more: {await _last_words(cluster)}")
            _say("Stopping: the nodes end in order.")
            await cluster.each(lambda each: cluster.processes.stop(each, STOP_TIMEOUT_MS))
        finally:
            await cluster.teardown()
    return 0


async def _boot(cluster: Cluster, system: System, directory: Path) -> None:
    await cluster.boot(system)
    note_endpoints(directory / ENDPOINTS, cluster, system)
    await system.await_ready(cluster, cluster.nodes, BOOT_TIMEOUT_MS)
    await system.configure(cluster, ())


async def _last_words(cluster: Cluster) -> str:
    said = [(await cluster.files.output(each, 1)).strip() for each in cluster.nodes]
    return "; ".join(filter(None, said)) or "they said nothing"


def _say(sentence: str) -> None:
    """Where it is read; what has detached has no reader any more."""
    with contextlib.suppress(OSError):
        typer.echo(sentence, err=True)


# -- where clients connect -------------------------------------------------------------------------

ENDS = "Ctrl-C ends "  # how the last line begins


def tell(plan: Plan, cluster: Cluster, system: System, directory: Path, stream: TextIO) -> None:
    """Where each node can be reached, and how it is asked."""
    lines = [f"{plan.system.name} ({plan.system.profile}) is up: {', '.join(cluster.nodes)}."]
    servers = [_at(cluster, each, "nameserver") for each in _hosting(cluster, system, "nameserver")]
    if servers:
        lines.append(f"  name server address: {';'.join(servers)}")
    for each in cluster.nodes:
        lines += [f"  {each} {line}" for line in _lines_of(plan, cluster, system, each)]
    verb = "cluster_status" if "amqp" in system.ports else "claims"
    if "management" in system.ports:
        lines.append(f"  ask it: shalott ctl {verb} --run {directory}")
    lines.append(f"  its files: {directory}")
    lines.append(f"{ENDS}it, in order; so does `shalott clean`.")
    stream.write("\n".join(lines) + "\n")
    stream.flush()


def _hosting(cluster: Cluster, system: System, port: str) -> list[str]:
    return [each for each in cluster.nodes if port in ports_of(system, each)]


def _lines_of(plan: Plan, cluster: Cluster, system: System, name: str) -> Iterator[str]:
    ports = ports_of(system, name)
    if "amqp" in ports:
        vhost = quote(str(plan.system.parameters.get("vhost", "/")), safe="")
        yield f"AMQP: amqp://{USER}:{USER}@{_at(cluster, name, 'amqp')}/{vhost}"
        page = f"http://{_at(cluster, name, 'management')}/"
        yield f"management page: {page} ({USER}, {USER})"
        return
    for port in ports:
        if port in INNER:
            continue
        if port == "management":
            yield f"management API: http://{_at(cluster, name, port)}/api/shalott/claims"
        else:
            yield f"{NAMES.get(port, port)}: {_at(cluster, name, port)}"


NAMES: Mapping[str, str] = {"remoting": "broker"}  # what ports are to a client
INNER = ("cluster", "raft", "ha", "controller", "nameserver")  # no client's, or told already


def _at(cluster: Cluster, name: str, port: str) -> str:
    endpoint = cluster.endpoint(name, port)
    return f"{endpoint.host}:{endpoint.port}"
