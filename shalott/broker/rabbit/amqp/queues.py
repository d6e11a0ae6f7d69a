"""Queues: what a channel needs of the queues behind it. Implemented by broker/rabbit/mirrored/.

The AMQP layer never touches masters, mirrors or policies: it declares, looks up and deletes through
this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Pid


class Queues(Protocol):
    def lookup(self, vhost: str, name: str) -> QueueRow | None:
        """The live row as this node sees it; ``pid`` is the master, ``slave_pids`` the mirrors."""
        ...

    def is_available(self, row: QueueRow) -> bool:
        """Whether the master's process can be reached now (else: 404 "home node ... is down or
        inaccessible").
        """
        ...

    async def declare(
        self,
        *,
        vhost: str,
        name: str,
        durable: bool,
        auto_delete: bool,
        exclusive_owner: Pid | None,
        arguments: Mapping[str, Any],
    ) -> QueueRow:
        """Create the queue on this node, with its mirrors by policy, or return the row that exists
        already.

        Comparing an existing row's properties is the caller's business. Raises MetadataUnavailable.
        """
        ...

    async def remove(self, row: QueueRow) -> int:
        """Delete the rows, the bindings and every process of the queue, and the auto-delete
        exchanges that were bound to nothing else; returns how many messages it held.
        """
        ...
