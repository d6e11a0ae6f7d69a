"""The names of what linked nodes of the mirrored broker say to each other.

A message between processes has its own name, one of the tables' Raft group that of Raft's, and
other frames of the link theirs (broker/rabbit/processes/link.py).
"""

from __future__ import annotations

from functools import partial

import msgspec

from shalott.broker.rabbit.processes import link
from shalott.cluster.systems.management import RABBIT_PORTS
from shalott.cluster.systems.message_names import NamingReader, cut_counted

LETTER = "Letter"
_decode = msgspec.msgpack.Decoder(list[object]).decode


def _name_of(body: bytes) -> str:
    frame = link.decode_frame(body)
    payload = getattr(frame, "payload", None)
    if payload is None:
        return type(frame).__name__.removesuffix("Frame")
    name, *fields = _decode(payload)
    return str(fields[1] if name == LETTER else name)


_cut = partial(cut_counted, most=link.MAX_FRAME_BYTES, name_of=_name_of)


def message_reader(port: int, from_dialler: bool) -> NamingReader | None:
    """See NamesMessages: what nodes say is known where they are linked."""
    return NamingReader(_cut) if port == RABBIT_PORTS["cluster"] else None
