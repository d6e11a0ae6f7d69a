"""KeepsMachines: of clusters that serve one run after another.

To make machines and to remove them takes seconds that no fault needs. A search runs one plan after
another, so its machines stay (containers, networks, volumes, addresses, relays) and only their past
goes: ``clear`` ends every process and empties every disk, ``boot_again`` starts the next run's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from shalott.cluster.base import System


@runtime_checkable
class KeepsMachines(Protocol):
    """A cluster that was booted once. Whatever either raises, it must be torn down then."""

    async def clear(self) -> None:
        """End every node's process, empty its disk and undo every fault. What nodes printed until
        now is no longer told. Raises HarnessError."""
        ...

    async def boot_again(self, system: System) -> None:
        """As ``boot``, on cleared machines: write the system's files and start every node. The
        nodes have the same names and ports as before. Raises HarnessError."""
        ...
