"""Process ids, the base of all messages, and their encoding between nodes.

Messages are frozen msgspec structs. Every package lists the ones it sends between processes in a
``MESSAGES`` tuple; ``broker.rabbit.node.node`` makes one Codec of all of them. In one node a
message is handed over as it is.
"""

from __future__ import annotations

import functools
import operator
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import dataclass_transform

import msgspec


class Pid(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A process: unique for ever, because ``incarnation`` grows with each start of the node."""

    node: str
    incarnation: int
    serial: int

    def __str__(self) -> str:
        return f"<{self.node}.{self.incarnation}.{self.serial}>"


class Name(msgspec.Struct, frozen=True):
    """A process registered under a name on a node."""

    node: str
    name: str


Address = Pid | Name


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of everything that is sent to a process."""


class Down(Message):
    """A monitored process ended, or can't be reached. Sent once for each ``monitor``.

    ``reason``: normal, shutdown, killed, noproc, noconnection, or "crash: ..." with the exception.
    """

    ref: int
    pid: Pid
    reason: str


class NodeUp(Message):
    """A link to ``node`` was made."""

    node: str
    incarnation: int


class NodeDownEvent(Message):
    """The link to ``node`` is gone. Every Down(noconnection) it caused was sent before this."""

    node: str
    reason: str


class Failed(Message):
    """A call's answer when the called process refused: ``kind`` says how, for programs; ``text``
    for people.
    """

    kind: str
    text: str = ""


class Done(Message):
    """A call's answer when there is nothing else to say."""


MESSAGES: tuple[type[Message], ...] = (Down, Failed, Done)


class Codec:
    """MessagePack encoding of a closed set of messages."""

    def __init__(self, messages: Sequence[type[Message]]) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._last: tuple[Message, bytes] | None = None
        union = functools.reduce(operator.or_, messages)
        decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(union)
        # Raises msgspec.DecodeError on bytes that are none of the messages.
        self.decode: Callable[[bytes], Message] = decoder.decode

    def encode(self, message: Message) -> bytes:
        last = self._last
        if last is not None and last[0] is message:  # one message to many: a publish to its queue
            return last[1]
        data = self._encoder.encode(message)
        self._last = message, data
        return data


# -- Erlang's notation -----------------------------------------------------------------------------

# Pids, names and values in Erlang's notation, as RabbitMQ's logs and tools print them.

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


def term(value: object) -> str:
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
