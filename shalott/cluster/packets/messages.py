"""What the harness and the packet engine say to each other: a JSON object a line."""

from __future__ import annotations

from typing import Literal

import msgspec

from shalott.cluster.nodes import LinkShape


class Source(msgspec.Struct, frozen=True):
    """Who sends to a node, by name, and how that link is shaped."""

    name: str
    shape: LinkShape


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``shape``: these are the links to ``node``, by the sender's address, and no others; its
    queue is in the network namespace of ``pid``. ``read``: what is in force on the links to it."""

    number: int
    do: Literal["shape", "read"]
    node: str
    pid: int = 0
    sources: dict[str, Source] = {}


class LinkState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``counts``: by what it was, how many packets met it since the shape was set
    (fates.py)."""

    shape: LinkShape
    counts: dict[str, int] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``error``: why it was not done. ``links``: by the sender's name. ``stall``: the engine did
    not run between these two times of the monotonic clock, in seconds."""

    number: int | None = None
    error: str = ""
    links: dict[str, LinkState] = {}
    stall: tuple[float, float] | None = None


def encode_line(message: object) -> bytes:
    return msgspec.json.encode(message) + b"\n"


decode_answer = msgspec.json.Decoder(Answer).decode
