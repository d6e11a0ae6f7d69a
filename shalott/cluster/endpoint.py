"""Endpoint: where a port of a node is reached. A file of its own, so that relays load little."""

from __future__ import annotations

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    """Where the harness reaches a node's port."""

    host: str
    port: int
