"""What the harness and the relays' process say to each other: JSON lines over two pipes.

Each order has a number and gets one answer with that number, when it is done: a cut that was
answered is in force. What the relays' process says unasked has no number.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shalott.cluster.nodes import Endpoint, Link

Ports = dict[str, Endpoint]  # by the port's name


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``open``: listen for every pair of ``nodes`` and port of ``targets``; the answer's
    ``listening`` says where. ``cut``: these links are cut, and no others. ``shape``: one link's.
    ``probe``: whether a byte passes one link in ``timeout_ms``; the answer's ``value``."""

    number: int
    do: Literal["open", "cut", "shape", "probe"]
    nodes: tuple[str, ...] = ()
    targets: dict[str, Ports] = {}
    links: tuple[Link, ...] = ()
    timeout_ms: int = 0
    # Of shape; None leaves it as it is: the answer's ``delay_s`` and ``rate_bytes_s`` say what is.
    delay_s: float | None = None
    rate_bytes_s: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``error``: why it was not done. ``stall``: the process did not run between these two times
    of the monotonic clock, in seconds."""

    number: int | None = None
    error: str = ""
    value: bool = False
    listening: dict[str, dict[str, Ports]] = {}  # [source][destination][port]
    delay_s: float = 0.0
    rate_bytes_s: int = 0
    stall: tuple[float, float] | None = None


def encode_line(message: object) -> bytes:
    return msgspec.json.encode(message) + b"\n"


decode_order = msgspec.json.Decoder(Order).decode
decode_answer = msgspec.json.Decoder(Answer).decode
