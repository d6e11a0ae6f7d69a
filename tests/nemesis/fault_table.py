"""The table of docs/faults.md: which fault can be made where, and of which system it can be asked.

To print it: python -m tests.nemesis.fault_table
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from shalott.cluster.capabilities import MOST
from shalott.cluster.system import System
from shalott.cluster.systems.record import SYSTEMS
from shalott.harness.run.planning import Request, make_plan
from shalott.harness.run.select import make_system
from shalott.nemesis.record import FAULTS, FaultRecord

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "faults.md"
WORLDS = ("sim", "docker", "ssh", "local")


def systems() -> dict[str, System]:
    """One of each, as a plan without faults has it."""
    return {
        name: make_system(make_plan(Request(system=name, nemesis="none"), backend=world, seed=1))
        for name, world in ((name, SYSTEMS.find(name).worlds[0]) for name in SYSTEMS.names())
    }


def lacks(record: FaultRecord, world: str) -> list[str]:
    """What keeps the fault from being made there."""
    return [need for need in record.needs if need not in MOST[world]]


def asked_of(record: FaultRecord, known: dict[str, System]) -> Sequence[str]:
    """The systems that it can be asked of."""
    return [
        name
        for name, system in known.items()
        if all(isinstance(system, protocol) for protocol in record.asks)
    ]


def cell(record: FaultRecord, world: str) -> str:
    missing = lacks(record, world)
    return f"no `{missing[0]}`" if missing else "yes"


def lines() -> Iterator[str]:
    known = systems()
    yield f"| fault | {' | '.join(WORLDS)} | systems |"
    yield f"| --- |{' --- |' * (len(WORLDS) + 1)}"
    for record in FAULTS.records():
        cells = [
            f"no `{lacks(record, world)[0]}`" if lacks(record, world) else "yes" for world in WORLDS
        ]
        found = asked_of(record, known)
        whom = "all" if len(found) == len(known) else ", ".join(f"`{name}`" for name in found)
        yield f"| `{record.name}` | {' | '.join(cells)} | {whom} |"


def drawn() -> str:
    return "\n".join(lines())


def shown(text: str) -> str:
    """What the document has of it."""
    return text.partition("<!-- faults -->\n")[2].partition("\n<!-- /faults -->")[0]


if __name__ == "__main__":
    print(drawn())  # noqa: T201
