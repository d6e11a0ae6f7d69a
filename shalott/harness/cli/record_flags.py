"""Flags that the command line takes from the records behind the doors.

Each parameter of every workload and system that is here is a flag of ``shalott test``; two records
whose parameters have one name share the flag.
"""

from __future__ import annotations

import msgspec

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.parameters import flags_of
from shalott.harness.cli.options import SharedFlag
from shalott.workloads.record import WORKLOADS


def shared_flags(*, workloads: bool = True) -> tuple[SharedFlag, ...]:
    """Every parameter's, in the order of the records; or of systems alone."""
    found: dict[str, SharedFlag] = {}
    structs: list[tuple[str, type[msgspec.Struct]]] = []
    if workloads:
        structs = [(record.name, record.parameters) for record in WORKLOADS.records()]
    structs += [(record.name, record.parameters) for record in SYSTEMS.records()]
    for owner, struct in structs:
        for flag in flags_of(struct):
            known = found.get(flag.name)
            owners = (*known.owners, owner) if known is not None else (owner,)
            found[flag.name] = SharedFlag(known.flag if known is not None else flag, owners)
    return tuple(found.values())
