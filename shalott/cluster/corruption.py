"""Bit rot on simulated disks, and the atlas that keeps it within what replication survives.

Theory. Rot that hits every copy of something is a loss that no broker can prevent, and finding it
says nothing. So before a byte is flipped the atlas is asked, as TigerBeetle's simulator asks its
own: nodes with rot on them must stay a minority of all nodes, and the rotten copies of a file a
minority of the disks that hold one durably under that path. A copy that was replaced or wiped is
sound again. A file that only one or two disks hold never rots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shalott.core.rng import Stream

BITS_IN_BYTE = 8


class Rotting(Protocol):
    """A disk as the atlas sees it."""

    def has_rot(self) -> bool:
        """Whether any file that has a name on it is rotten."""
        ...

    def has_rot_in(self, path: str) -> bool: ...

    def holds(self, path: str) -> bool:
        """Whether the file is there and will be after a power loss."""
        ...


class FaultAtlas:
    """All the disks of a cluster. One that is never attached to any atlas rots without bounds."""

    def __init__(self) -> None:
        self._disks: list[Rotting] = []

    def attach(self, disk: Rotting) -> None:
        self._disks.append(disk)

    def allows(self, disk: Rotting, path: str) -> bool:
        """Whether the copy of ``path`` on ``disk`` may rot, given what is rotten already."""
        others = [other for other in self._disks if other is not disk]
        rotten_nodes = sum(other.has_rot() for other in others) + 1
        holders = 1 + sum(other.holds(path) for other in others)
        rotten_copies = sum(other.has_rot_in(path) for other in others) + 1
        return _is_minority(rotten_nodes, len(others) + 1) and _is_minority(rotten_copies, holders)


def _is_minority(part: int, whole: int) -> bool:
    return 2 * part < whole


def choose_bit(sizes: Sequence[int], draws: Stream) -> tuple[int, int, int]:
    """Which file, byte and bit of it rots; every byte of all the files is equally likely."""
    position = draws.below(sum(sizes))
    for number, size in enumerate(sizes):
        if position < size:
            return number, position, draws.below(BITS_IN_BYTE)
        position -= size
    raise AssertionError("a position within the sum lies in one of the files")
