"""What this machine holds at once, and what a run of a cell needs of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shalott.core.errors import UsageError
from shalott.harness.fleet.matrix.cells import Cell
from shalott.harness.fleet.matrix.definition import Machine

NODE_BYTES = 400 * 2**20  # what a node and its share of the harness take
ANY = 10**6


@dataclass(slots=True)
class Room:
    """What is free. ``hosts``: one run at a time has the hosts of ``--cluster ssh``."""

    jobs: int
    cores: float
    containers: int
    hosts: int = 1

    def has(self, cell: Cell) -> bool:
        """Whether a run of the cell can begin."""
        jobs, cores, containers, hosts = needs(cell)
        return (
            jobs <= self.jobs
            and cores <= self.cores
            and containers <= self.containers
            and hosts <= self.hosts
        )

    def take(self, cell: Cell, sign: int = 1) -> None:
        """A run begins, or gives back what it had (``sign`` -1)."""
        jobs, cores, containers, hosts = needs(cell)
        self.jobs -= sign * jobs
        self.cores -= sign * cores
        self.containers -= sign * containers
        self.hosts -= sign * hosts


def needs(cell: Cell) -> tuple[int, float, int, int]:
    """(jobs, cores, containers, hosts)."""
    return 1, cell.cores, cell.containers, int(cell.request.cluster == "ssh")


def room_of(machine: Machine, cells: tuple[Cell, ...]) -> Room:
    """What may be in use. Raises UsageError for a cell that will never fit."""
    cores = machine.cores or float(len(os.sched_getaffinity(0)))
    containers = machine.containers or max(1, _free_bytes() // NODE_BYTES)
    room = Room(machine.jobs or ANY, cores, containers)
    for cell in cells:
        if not room.has(cell):
            raise UsageError(
                f"cell {cell.key} needs {cell.cores:g} cores and {cell.containers} containers:"
                f" there are {cores:g} and {containers}, unless [machine] says otherwise"
            )
    return room


def _free_bytes() -> int:
    """Memory that can be had; much, where nobody can say."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return ANY * NODE_BYTES
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return ANY * NODE_BYTES
