"""Programs as clients of the shared workloads: which there are, and what a plan makes of one.

A plan that has a program (``WorkloadPlan.client``) uses it in place of what its system says of its
clients; what the system promises stays. clients/programs has the programs' side.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from shalott.clients.programs.build import GO, built
from shalott.clients.programs.process import PLACES, Places, ProgramProcess
from shalott.clients.programs.ways import (
    ProgramPartitioned,
    ProgramQueued,
    ProgramRegistered,
    ProgramTransactor,
)
from shalott.cluster.systems.record import (
    PARTITIONS,
    QUEUES,
    REGISTERS,
    TRANSACTIONS,
    Partitions,
    Queues,
    Registers,
    Transactions,
)
from shalott.core.errors import UsageError
from shalott.core.plan import Plan, ProgramPlan, names_prefix

C_co = TypeVar("C_co", covariant=True)
SPOKEN = (QUEUES, REGISTERS, PARTITIONS, TRANSACTIONS)


def tell_places(places: Places) -> None:
    """Where the programs that are started from here on find the nodes of their run."""
    PLACES.set(places)


def queues_by(plan: Plan, told: Queues | None) -> Queues:
    """By the plan's program; what the system says of its queues otherwise (``told``) stays."""
    make = _maker(plan, ProgramQueued)
    own = Queues(port=_program(plan).port, make_client=make)
    return own if told is None else replace(told, port=own.port, make_client=make)


def registers_by(plan: Plan, told: Registers | None) -> Registers:
    make = _maker(plan, ProgramRegistered)
    own = Registers(port=_program(plan).port, make_client=make)
    return own if told is None else replace(told, port=own.port, make_client=make)


def partitions_by(plan: Plan, told: Partitions | None) -> Partitions:
    make = _maker(plan, ProgramPartitioned)
    own = Partitions(port=_program(plan).port, make_client=make)
    return replace(told or own, port=own.port, make_client=make, transactions=False, groups=False)


def transactions_by(plan: Plan, told: Transactions | None) -> Transactions:
    make = _maker(plan, ProgramTransactor)
    own = Transactions(port=_program(plan).port, make_client=make)
    return own if told is None else replace(told, port=own.port, make_client=make)


class _Make(Protocol[C_co]):
    def __call__(self, host: str, port: int, *, timeout_ms: int) -> C_co: ...


def _maker(plan: Plan, kind: Callable[[ProgramProcess, str], C_co]) -> _Make[C_co]:
    """Makes clients of the node that listens there: each has a process of its own."""
    name, words, prefix = plan.workload.name, _program(plan).words, names_prefix(plan)

    def make(host: str, port: int, *, timeout_ms: int) -> C_co:
        process = ProgramProcess(built(words), host, port, workload=name, timeout_ms=timeout_ms)
        return kind(process, prefix)

    return make


def _program(plan: Plan) -> ProgramPlan:
    program = plan.workload.client
    assert program is not msgspec.UNSET, "the plan has a program for a client"
    return program


def find_program(told: str) -> tuple[str, ...]:
    """The words of ``--client``, whose program may be a file of the working directory. Raises
    UsageError: there is no such program, or it can't be built."""
    try:
        program, *arguments = shlex.split(told)
    except ValueError as error:
        raise UsageError(f"--client {told}: {error}") from error
    path = Path(program)
    if path.is_file():
        program = program if "/" in program else f"./{program}"
        if not program.endswith(GO) and not os.access(path, os.X_OK):
            raise UsageError(f"--client {told}: it is no program: chmod +x {program}")
    elif "/" in program or shutil.which(program) is None:
        raise UsageError(
            f"--client {told}: there is no such program; give one that reads and writes JSON lines"
        )
    words = (program, *arguments)
    built(words)
    return words
