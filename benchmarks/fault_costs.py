"""What each fault costs to make, to prove, to heal and to prove healed.

``python -m benchmarks.fault_costs docker [rounds]``, or ``ssh`` (as root: hosts are network
namespaces with an sshd each), ``local``. Three nodes of a small program, one fault at a
time, each so many rounds (5); prints the medians and the worst in ms. Faults that ask something of
a system are left out: they cost what the system takes.
Making and healing is the time of the calls; proving adds the probes, whose interval is 100 ms.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from shalott.core.plan import FaultAction
from shalott.nemesis.record import FAULTS, FaultRecord
from shalott.nemesis.runner import NemesisRunner
from tests.world.cluster.backends import World, booted_world
from tests.world.cluster.fake_system import NODES
from tests.world.harness.nemesis import MemoryRecorder, make_plan

ROUNDS = 5
DURATION_MS = 300
WORLDS = {"docker": "docker-all", "ssh": "ssh-all", "local": "local-disks"}
COLUMNS = ("made", "proved", "healed", "proved healed")


@dataclass
class Costs:
    """Of one kind: ms of each round, by column. ``unproved``: how many rounds were not proved."""

    ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    unproved: int = 0


def action_of(record: FaultRecord, number: int) -> FaultAction:
    """One of its kind, of its middle amount."""
    amounts = record.amounts
    return FaultAction(
        id=number,
        at_ms=0,
        duration_ms=DURATION_MS,
        kind=record.name,
        target="n2",
        nodes=NODES if record.target == "all" else ("n2",),
        amount=amounts[len(amounts) // 2] if amounts else 0,
        seed=number,
    )


def costs_of(row: Mapping[str, Any], probes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """ms of one fault, out of its row and its probes'."""
    extra = row["extra"]
    made_ns, healed_ns = extra["effective_ns"], extra["healed_ns"]
    ends = {
        phase: max(
            (probe["complete_ns"] for probe in probes if probe["extra"]["phase"] == phase),
            default=None,
        )
        for phase in ("effective", "healed")
    }
    proved_ns, gone_ns = ends["effective"] or made_ns, ends["healed"] or healed_ns
    ended_ns = max(made_ns + DURATION_MS * 1_000_000, proved_ns)
    spans = (
        made_ns - row["invoke_ns"],
        proved_ns - made_ns,
        healed_ns - ended_ns,
        gone_ns - healed_ns,
    )
    return dict(zip(COLUMNS, (ns / 1e6 for ns in spans), strict=True))


async def perform(world: World, record: FaultRecord, action: FaultAction) -> MemoryRecorder:
    recorder = MemoryRecorder()
    runner = NemesisRunner(
        world.cluster, world.system, make_plan(action), recorder, client_ports=("management",)
    )
    await runner.run()
    await runner.heal()
    if "damages-data" in record.effects:  # the program does not start on such files
        await world.cluster.processes.kill("n2")
        await world.cluster.files.wipe("n2")
    await world.make_whole()
    return recorder


def measure(world: World, record: FaultRecord, rounds: int) -> Costs:
    found = Costs()
    for number in range(1, rounds + 1):
        recorder = world.run(perform(world, record, action_of(record, number)))
        (row,) = recorder.of(record.name)
        probes = recorder.of("probe")
        if row["extra"]["proved_effective"] and row["extra"]["proved_healed"]:
            for name, ms in costs_of(row, probes).items():
                found.ms[name].append(ms)
        else:
            found.unproved += 1
    return found


def main(arguments: Sequence[str]) -> int:
    backend, rounds = arguments[0], int(arguments[1]) if len(arguments) > 1 else ROUNDS
    print(f"{backend}, {rounds} rounds, load {os.getloadavg()[0]:.1f}; ms: median (worst)")
    print(f"{'fault':28s}" + "".join(f"{name:>20s}" for name in COLUMNS))
    with (
        tempfile.TemporaryDirectory() as directory,
        booted_world(WORLDS[backend], Path(directory)) as world,
    ):
        world.run(world.make_whole())
        for record in FAULTS.records():
            lacking = [each for each in record.needs if each not in world.cluster.capabilities]
            if record.asks or lacking or record.one_by_one:
                continue
            costs = measure(world, record, rounds)
            cells = [f"{median(ms):.0f} ({max(ms):.0f})" if ms else "-" for ms in costs.ms.values()]
            note = f"  {costs.unproved} not proved" if costs.unproved else ""
            print(f"{record.name:28s}" + "".join(f"{cell:>20s}" for cell in cells) + note)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
