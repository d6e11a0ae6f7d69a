"""Naming: nodes in place of addresses, in what operators are told of replication.

HAService's wire does not say who a slave is, and slaves on one host share its address (the local
world's all do). A name is told where it is certain: by an address of its own, or because nobody
else is left; and else who it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def named(synchronised: list[str], mirrors: list[str]) -> list[str]:
    """Who is in sync, by name: addresses are, when there are as many as there can be."""
    if all(name in mirrors for name in synchronised):
        return synchronised
    return mirrors if len(synchronised) >= len(mirrors) else []


def with_names(
    status: Mapping[str, Any], node: str, brokers: Sequence[str], node_of: Callable[[str], str]
) -> dict[str, Any]:
    """The body of GET_BROKER_HA_STATUS with names: ``node`` is who tells it, ``slave`` whom a
    connection is of, ``master`` who is followed. ``node_of``: of an advertised address, or ""."""
    others = [name for name in brokers if name != node]
    links = [(_name(link, others), link) for link in status["haConnectionInfo"]]
    known = [name for name, _ in links]
    perhaps = " or ".join(name for name in others if name not in known)
    told: dict[str, Any] = {"node": node, **status}
    told["haConnectionInfo"] = [
        {**link, "slave": name or perhaps or link["addr"]} for name, link in links
    ]
    client = status.get("haClientRuntimeInfo")
    if client:
        told["haClientRuntimeInfo"] = {"master": node_of(client["masterAddr"]), **client}
    return told


def _name(link: Mapping[str, Any], others: Sequence[str]) -> str:
    """ "" if the connection does not tell it."""
    told = (str(link.get("slave", "")), str(link["addr"]))
    return next((name for name in told if name in others), "")
