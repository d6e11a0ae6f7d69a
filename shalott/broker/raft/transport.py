"""Transport: what a member needs of the network between the members; users of a group bring it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shalott.broker.raft import api


class Transport(Protocol):
    """What the runner needs of a network."""

    async def start(self, receive: Callable[[str, api.Message], None]) -> None:
        """``receive(sender, message)`` is called for all that comes."""
        ...

    async def stop(self) -> None: ...

    def send(self, to: str, message: api.Message) -> None:
        """Now or never: nobody hears whether it arrived."""
        ...
