"""What each world can do, as a table: a row for each part, and the words for who lacks one.

A cell holds what the part can do where its host lacks nothing. The simulation always can. What
processes on loopback, containers and hosts can is found on the host: it is this or less (no root,
no nft, no FUSE, an old kernel). docs/reference/faults.md is drawn of it. A cell that is missing is
a part that the world does not have (parts.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from shalott.core.errors import MissingCapability

# A plan whose faults ask for what is missing is refused before boot.
Capability = Literal[
    "kill",
    "stop",
    "pause",
    "cut",
    "cut-one-way",
    "delay",
    "throttle",
    "wipe",
    "power",
    "clock",
    "loss",
    "jitter",
    "duplicate",
    "reorder",
    "corrupt",
    "disk-slow",
    "disk-full",
    "disk-error",
    "disk-short",
    "disk-corrupt",
    "change-files",
    "cut-clients",
    "trigger-event",
    "trigger-sync",
    "trigger-disk",
    "trigger-message",
    "hold",
    "hold-back",
    "suspend",
    "upgrade",
    "limit-cpu",
    "limit-memory",
    "limit-files",
    "limit-processes",
    "fill-tmp",
    "stop-process",
]
PartName = Literal["processes", "links", "disks", "clocks", "resources", "files", "images"]
Can = frozenset[Capability]

NOTHING: Can = frozenset()
_SIGNALS: Can = frozenset({"kill", "stop", "pause"})
CUTS: Can = frozenset({"cut", "cut-one-way"})
_SLOW: Can = frozenset({"delay", "throttle"})
_LATE: Can = frozenset({"loss", "jitter"})
_PACKETS: Can = frozenset({"duplicate", "reorder", "corrupt"})
POWER: Can = frozenset({"power"})
CLIENT_CUTS: Can = frozenset({"cut-clients"})
DISKS: Can = frozenset(
    {*("disk-slow", "disk-full", "disk-error", "disk-short", "disk-corrupt"), "trigger-sync"}
)
CLOCKS: Can = frozenset({"clock"})
_FOREIGN: Can = frozenset({"trigger-event", "change-files"})
FILES: Can = _FOREIGN | {"wipe"}
_FULL: Can = frozenset({"disk-full"})
RESOURCES: Can = frozenset(
    {*("limit-cpu", "limit-memory", "limit-files", "limit-processes", "fill-tmp", "stop-process")}
)
IMAGES: Can = frozenset({"upgrade"})
# What takes disks of ours under the nodes' data.
DISK_CAPABILITIES = DISKS | POWER

WORLDS: Mapping[str, Mapping[PartName, Can]] = {
    "sim": {
        "processes": _SIGNALS | POWER | {"hold"},
        "links": CUTS | _SLOW | _LATE | CLIENT_CUTS | {"trigger-message", "hold-back"},
        "disks": DISKS | {"trigger-disk"},
        "clocks": CLOCKS | {"suspend"},
        "files": FILES,
    },
    "docker": {
        "processes": _SIGNALS | POWER,
        "links": CUTS | _SLOW | _LATE | _PACKETS | CLIENT_CUTS,
        "disks": DISKS,
        "clocks": CLOCKS,
        "resources": RESOURCES,
        "files": FILES,
        "images": IMAGES,
    },
    "ssh": {
        "processes": _SIGNALS | POWER,
        "links": CUTS | _SLOW | _LATE | _PACKETS | CLIENT_CUTS,
        "disks": DISKS,
        "clocks": CLOCKS,
        "resources": RESOURCES,
        "files": FILES,
    },
    "existing": {
        "processes": _SIGNALS,
        "links": CUTS | _SLOW | _LATE | _PACKETS | CLIENT_CUTS,
        "disks": _FULL,
        "clocks": CLOCKS,
        "resources": RESOURCES - {"fill-tmp"},
        "files": _FOREIGN,
    },
    "local": {
        "processes": _SIGNALS | POWER,
        "links": CUTS | _SLOW,
        "disks": DISKS,
        "files": FILES,
    },
}
MOST: Mapping[str, Can] = {
    world: frozenset(word for cell in parts.values() for word in cell)
    for world, parts in WORLDS.items()
}

# What a world that lacks it can't do, in words.
CAN: Mapping[str, str] = {
    "kill": "kill nodes",
    "stop": "stop nodes",
    "pause": "pause nodes",
    "cut": "cut links",
    "cut-one-way": "cut links in one direction",
    "delay": "delay packets",
    "throttle": "throttle links",
    "wipe": "wipe nodes' data",
    "power": "cut the power of nodes",
    "clock": "set clocks of nodes wrong",
    "loss": "lose packets",
    "jitter": "delay each packet by another time",
    "duplicate": "duplicate packets",
    "reorder": "reorder packets",
    "corrupt": "corrupt packets",
    "disk-slow": "slow disks down",
    "disk-full": "fill disks",
    "disk-error": "make disks fail",
    "disk-short": "cut reads and writes short",
    "disk-corrupt": "corrupt disks",
    "change-files": "change nodes' files",
    "cut-clients": "part clients from nodes",
    "trigger-event": "hear of nodes' events",
    "trigger-sync": "count the syncs of disks",
    "trigger-disk": "watch what disks are asked to do",
    "trigger-message": "see what nodes say to each other",
    "hold-back": "hold back some connections and let others pass",
    "suspend": "have the time of nodes stand still",
    "hold": "hold nodes in the middle of what they do",
    "upgrade": "make nodes from other images",
    "limit-cpu": "take CPU from nodes",
    "limit-memory": "take memory from nodes",
    "limit-files": "take files from nodes",
    "limit-processes": "take processes from nodes",
    "fill-tmp": "fill the directory of temporary files",
    "stop-process": "stop one process of a node",
}
# Why a part refuses, for callers that did not ask for its capabilities first.
_REASONS: Mapping[str, str] = {
    "power": "cut a node's power: its disk is this host's own, which loses nothing unsynced",
    "clocks": "set a node's clock apart from the host's: only the simulation can, and containers"
    " and hosts whose nodes were started for it",
    "loss": "lose packets",
    "packets": "duplicate, reorder or corrupt packets: its links carry streams, which have none",
    "images": "make nodes from another image: only containers are made from images",
    "disks": "make a node's disk fail: it is this host's own",
    "resources": "make a node short of anything",
}


def lacking(missing: Iterable[str]) -> str:
    """What can't be done, in words; of a word that is not known here, the word."""
    return " nor ".join(f"{CAN.get(each, each)} ({each})" for each in missing)


def refusal(backend: str, what: str) -> MissingCapability:
    """The error to raise. ``what``: a part, or what a part can't do."""
    return MissingCapability(f"the {backend} cluster can't {_REASONS[what]}")
