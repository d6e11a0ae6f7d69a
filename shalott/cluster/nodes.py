"""What nodes are, and what can be wrong with them: the data that worlds, systems and faults share.

A file of its own that imports little, so that relays start fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from shalott.core.json_value import Json

MIB = 1 << 20
Link = tuple[str, str]  # (source, destination): one direction between two nodes
CLIENTS = "clients"  # the far end of the links between the harness's clients and a node


class Endpoint(msgspec.Struct, frozen=True):
    """Where the harness reaches a node's port."""

    host: str
    port: int


NodeState = Literal["running", "paused", "exited", "absent"]


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``exit_code`` is set when the process exited by itself or was killed."""

    state: NodeState
    exit_code: int | None = None
    pid: int | None = None


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has taken since it was started. ``life``: another one after each start."""

    life: int
    cpu_s: float
    memory_bytes: int  # now


class NodeExit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a node's process that the harness did not ask for.

    ``exit_code``: 128 and the signal's number for a signal, as shells show it; None: not known.
    ``out_of_memory``: the kernel ended it for want of memory, where the backend can tell.
    """

    node: str
    exit_code: int | None
    out_of_memory: bool = False


class HelperEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a process of the harness's own that serves nodes, though nothing asked for it.

    ``helper``: relays, file system, packet engine, agent, exit watch. ``node``: whose it was; "":
    of all nodes. ``reason``: a clause that says how it ended.
    """

    helper: str
    node: str = ""
    reason: str = ""


class LinkShape(msgspec.Struct, frozen=True, kw_only=True):
    """How one direction of a link is slowed and spoilt. Zero means: as it is.

    ``correlation``: the probability that a packet meets what the packet before it met, of loss,
    jitter and the rest (netem has a formula of its own).
    """

    delay_ms: float = 0
    rate_bytes_s: int = 0
    loss: float = 0  # probability that a packet is lost; TCP makes a late one of it
    jitter_ms: float = 0  # a packet takes up to so much longer than ``delay_ms``
    duplicate: float = 0  # probability that a packet arrives twice
    reorder: float = 0  # probability that a packet is overtaken by those behind it
    corrupt: float = 0  # probability that a bit of a packet is flipped; TCP drops it
    correlation: float = 0


class PacketsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What became of numbered packets that were sent over one direction of a link, to see.

    ``least_ms`` and ``most_ms``: how long those that arrived took; None if none did.
    ``overtaken``: that arrived behind one that was sent later.
    """

    sent: int
    arrived: int  # each once
    duplicated: int
    overtaken: int
    corrupted: int
    least_ms: float | None = None
    most_ms: float | None = None


class DiskFaults(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one node's disk. The defaults are a sound disk."""

    slow_ms: float = 0  # every call takes that much longer, a sync too
    full: bool = False  # writes that need space fail (ENOSPC)
    fail_sync: bool = False  # syncs fail (EIO), and what they were to save is lost
    short: bool = False  # reads and writes may do less than they were asked to
    corrupt_bytes: int = 0  # so many of the stored bytes rot; rot is never undone by a heal


SOUND_DISK = DiskFaults()


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """What one node is short of. Zero and False mean: as it was.

    What is ``left`` is counted from the moment when the shortage is made.
    """

    cpu_percent: float = 0  # of one CPU, for all processes of the node together
    memory_left_mib: float = 0  # beyond it the kernel ends a process of the node
    files_left: int = 0  # that each of its processes may still open
    processes_left: int = 0  # and threads; a process that forks without end takes them all
    is_tmp_full: bool = False  # there is no room in /tmp
    is_stopped: bool = False  # its largest process stands still, by SIGSTOP; the others go on


PLENTY = Shortage()


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """How an image is built of a directory, with the engine's own words."""

    context: str
    dockerfile: str = "Dockerfile"  # relative to the directory
    arguments: Mapping[str, str] = {}
    target: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a container is asked whether it does what it is for: a command in it that ends with 0.

    ``patience_s``: how long it may take from its start on.
    """

    words: tuple[str, ...]
    timeout_s: float = 30.0
    patience_s: float = 120.0


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a container is made with that others than ours say of it.

    ``config`` and ``host`` are the engine's own words (its API's container and HostConfig), which
    go over those that a node gets anyhow. ``data``: where the node's own volume is, "" for where
    the image has its first one. ``volumes``: further places for volumes of its own; ``shared``:
    places for volumes that others use too, by their names; ``binds``: places of files and
    directories of this host, that it only reads. ``copies``: files and directories of this host
    that it gets as its own; ``contents``: files by what is in them. ``address``: the one that it
    must have. ``names``: which it goes by besides its own. ``health``: None: as its image says.
    """

    config: Mapping[str, Json] = {}
    host: Mapping[str, Json] = {}
    data: str = ""
    volumes: tuple[str, ...] = ()
    shared: Mapping[str, str] = {}
    binds: Mapping[str, str] = {}
    copies: Mapping[str, str] = {}  # by place: what
    contents: Mapping[str, str] = {}
    address: str = ""
    names: tuple[str, ...] = ()
    build: Build | None = None
    health: Health | None = None
    stop_ms: int = 0  # how long it may take to stop; 0: as long as any


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a system wants on one node. Paths in ``files`` are relative to its configuration
    directory.

    ``command`` and the values of ``environment`` may hold the placeholders ``{config}`` and
    ``{data}``, the directories as the node sees them, and ``{python}``, an interpreter that has
    the broker's libraries. ``ports`` maps a port's name to the number that the node listens on
    inside its own world. ``collect`` names files and directories under the data directory that
    ``Cluster.collect`` brings.
    """

    name: str
    # Name of a recipe under cluster/images, or the absolute path of a directory with a Dockerfile,
    # which may begin with ARG BASE and FROM ${BASE}. The local backend ignores it.
    image: str
    command: tuple[str, ...]
    files: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    ports: Mapping[str, int] = {}
    collect: tuple[str, ...] = ("events.jsonl",)
    restart_if_exits: bool = False  # by itself, that is; a killed or stopped node stays down
    container: ContainerSpec | None = None  # of a node that is a container as others describe it


class CommandResult(msgspec.Struct, frozen=True):
    """What ``run_command`` met. ``output`` holds both streams; not ``is_whole``: some of it was
    lost on its way, which who needs it must ask for again, if that does no harm."""

    exit_code: int
    output: str
    is_whole: bool = True


class Stays(msgspec.Struct, frozen=True, kw_only=True):
    """How local nodes differ that serve a user and no run. ``usual_ports``: the first of them has
    its system's usual port numbers, where these are free. ``keep``: their files outlive them."""

    usual_ports: bool = False
    keep: bool = False


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses settled by the backend before the nodes' files are written.

    ``listen[node][port]``: what a node binds. ``dial[source][destination][port]``: what
    ``source`` dials to reach ``destination`` (a relay in the local backend). ``data_dir[node]``:
    as the node sees it.
    """

    listen: Mapping[str, Mapping[str, Endpoint]]
    dial: Mapping[str, Mapping[str, Mapping[str, Endpoint]]]
    data_dir: Mapping[str, str]
    config_dir: Mapping[str, str]
