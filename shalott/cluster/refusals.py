"""Refusals: the one sentence for each kind of fault that a world can't make.

A plan that asks for one is refused before boot, by its capabilities. These are for callers that
don't ask first: a backend says what it lacks and never pretends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shalott.core.errors import MissingCapability

REASONS: Mapping[str, str] = {
    "power": "cut a node's power: its disk is this host's own, which loses nothing unsynced",
    "clock": "set a node's clock apart from the host's: only the simulation can, and containers"
    " and hosts whose nodes were started for it",
    "loss": "lose packets",
    "packets": "duplicate, reorder or corrupt packets: its links carry streams, which have none",
    "upgrade": "make nodes from another image: only containers are made from images",
    "disk": "make a node's disk fail: it is this host's own",
}

# By capability (cluster/base.py): what a world that lacks it can't do, in words.
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
    "cut-clients": "part clients from nodes",
    "trigger-event": "hear of nodes' events",
    "trigger-sync": "count the syncs of disks",
    "upgrade": "make nodes from other images",
    "limit-cpu": "take CPU from nodes",
    "limit-memory": "take memory from nodes",
    "limit-files": "take files from nodes",
    "limit-processes": "take processes from nodes",
    "fill-tmp": "fill the directory of temporary files",
    "stop-process": "stop one process of a node",
}


def lacking(missing: Iterable[str]) -> str:
    """What can't be done, in words; of a word that is not known here, the word."""
    return " nor ".join(f"{CAN.get(each, each)} ({each})" for each in missing)


def refusal(backend: str, what: str) -> MissingCapability:
    """The error to raise. ``what`` is a key of REASONS."""
    return MissingCapability(f"the {backend} cluster can't {REASONS[what]}")
