"""Pids, names and values in Erlang's notation, as RabbitMQ's logs and tools print them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

from shalott.broker.rabbit.processes.messages import Message, Pid

_CHANNELS = 30_000  # numbers of a node's links
_PLAIN_ATOM = re.compile(r"[a-z][A-Za-z0-9_@]*\Z")


def pid_here(pid: Pid, node: str) -> str:
    """As ``node`` prints it: ``<0.17.0>`` if it is its own, ``<19334.17.0>`` if another's.

    In Erlang the first number is that of the link to the other node; here it is made of its name.
    """
    link = 0 if pid.node == node else 1 + zlib.crc32(pid.node.encode()) % _CHANNELS
    return f"<{link}.{pid.serial}.0>"


def pid_anywhere(pid: Pid) -> str:
    """As every node prints it: ``<n1.3.17.0>``, with the incarnation of its node
    (rabbit_misc:pid_to_string).
    """
    return f"<{pid.node}.{pid.incarnation}.{pid.serial}.0>"


def atom(name: str) -> str:
    return name if _PLAIN_ATOM.match(name) else f"'{name}'"


def term(value: Any) -> str:
    """A value of JSON: text is a binary, an object a list of pairs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "undefined"
    if isinstance(value, str):
        return f'<<"{value}">>'
    if isinstance(value, Mapping):
        return "[" + ",".join(f"{{{term(k)},{term(v)}}}" for k, v in value.items()) + "]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(term, value)) + "]"
    return str(value)


def to_an_old_life(message: Message, sender: Pid | None, to: Pid, node: str, life: int) -> str:
    """What a node says of a message to a process of a former life of its own."""
    who = "<0.0.0>" if sender is None else pid_here(sender, node)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(message).__name__).lower()
    return (
        f"Discarding message {{'$gen_cast',{name}}} from {who} to <0.{to.serial}.0>"
        f" in an old incarnation ({to.incarnation}) of this node ({life})"
    )
