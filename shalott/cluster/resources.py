"""Shortages: what a node's machine has too little of, and the clusters that can bring that about.

A shortage is a setting, as a clock and a disk are (base.py): the last one stands, it outlives
restarts, and ``heal`` ends it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

MIB = 1 << 20


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """What one node is short of. Zero and False mean: as it was.

    What is ``left`` is counted from the moment when the shortage is made.
    """

    cpu_percent: float = 0  # of one CPU, for all processes of the node together
    memory_left_mib: float = 0  # beyond it the kernel ends a process of the node
    files_left: int = 0  # that each of its processes may still open
    processes_left: int = 0  # and threads; a process that forks without end takes them all
    is_tmp_full: bool = False  # there is no room in /tmp
    is_stopped: bool = False  # its largest process stands still, by SIGSTOP; the others go on


PLENTY = Shortage()


@runtime_checkable
class LimitsResources(Protocol):
    """Of clusters that can make a node short of what its machine has."""

    async def set_shortage(self, node: str, shortage: Shortage) -> None:
        """From now on; ``PLENTY``: as it was. Of a node that does not run: from its start on.

        Raises HarnessError."""
        ...

    async def shortage(self, node: str) -> Shortage:
        """What is in force now: read from the kernel, not from what was asked for. ``PLENTY`` of a
        node that does not run."""
        ...
