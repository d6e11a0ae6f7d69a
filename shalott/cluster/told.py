"""What some worlds and systems tell while a run lasts, and clusters that part clients from nodes.

Protocols beside those of base.py: a cluster or a system has the methods, or it lacks them, and a
plan that needs them is refused before boot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from shalott.core.history import History

CLIENTS = "clients"  # the far end of the links between the harness's clients and a node


@runtime_checkable
class CutsClients(Protocol):
    """Of clusters that can part the harness's clients from nodes, and nothing else.

    Links are (CLIENTS, node), what clients send, and (node, CLIENTS), what they are answered. The
    nodes reach each other as before, and the harness reaches their other ports.
    """

    async def set_client_cuts(self, links: Sequence[tuple[str, str]], ports: Sequence[str]) -> None:
        """From now on these links are cut, at the ports of these names, and no others.

        Connections hang, they are not reset. ``heal`` mends them all.
        """
        ...

    async def client_cuts(self) -> Sequence[tuple[str, str]]:
        """Which of these links are cut now, sorted: read where it works, not from what was asked
        for."""
        ...


@runtime_checkable
class WritesEvents(Protocol):
    """Of systems whose nodes write their events, a JSON object a line, while they run."""

    events_file: str  # relative to the data directory


@runtime_checkable
class AcknowledgesUnlogged(Protocol):
    """Of systems whose nodes log no acknowledgements: what clients saw of them stands for that."""

    def acknowledged_events(
        self, history: History, rows: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """Rows ``acked`` of EVENT_SCHEMA, by a run's operations and what its nodes told."""
        ...


@runtime_checkable
class TellsSynchronisations(Protocol):
    """Of systems whose queues say in their state when they are ``syncing``."""

    tells_synchronisations: bool


@runtime_checkable
class TellsEventsAtOnce(Protocol):
    """Of clusters that hear of a node's event when it happens."""

    def watch_events(self, tell: Callable[[str, Mapping[str, Any]], None]) -> Callable[[], None]:
        """Call ``tell`` with a node and its event, for every event from now on. What is returned
        ends that. ``tell`` is called from within the node, and must do next to nothing."""
        ...


@runtime_checkable
class ReadsDataFiles(Protocol):
    """Of clusters that can read a node's files while it runs."""

    async def read_data(self, node: str, path: str, offset: int) -> bytes:
        """A file below the data directory from that byte on; b"" if there is none, or nothing new.

        Raises HarnessError if it can't be looked at, as of a node that does not run in some worlds.
        """
        ...


@runtime_checkable
class CountsSyncs(Protocol):
    """Of clusters whose nodes' disks can be waited for."""

    async def await_syncs(self, node: str, count: int, timeout_ms: int) -> bool:
        """Whether the disk makes so many more syncs, of files or directories, in time."""
        ...
