"""``shalott`` in the world in memory, as a process of its own: ``python -m`` this module."""

from __future__ import annotations

import sys
from collections.abc import Callable

from shalott.core.plan import Plan
from shalott.harness.cli.main import run_command
from shalott.harness.run import backends, session
from shalott.harness.run.backends import Choice
from shalott.harness.run.store import RunDirectory
from shalott.harness.run.world import World
from tests.world.harness.memory import MemoryWorld, Trap


def install(trap: Trap, patch: Callable[[object, str, object], None] = setattr) -> MemoryWorld:
    """Put the world in memory where the command line looks for worlds."""
    memory = MemoryWorld(trap)

    def build_world(plan: Plan, directory: RunDirectory) -> World:
        return memory.world(plan)

    def choose_backend(wanted: str, system: str) -> Choice:
        return Choice("memory", "this is a test")

    patch(session, "build_world", build_world)
    patch(backends, "choose_backend", choose_backend)
    memory.offer()
    return memory


def main() -> int:
    memory = install(Trap())
    code = run_command(sys.argv[1:])
    print("calls", " ".join(memory.cluster.calls))  # noqa: T201 - what the test reads
    return code


if __name__ == "__main__":
    sys.exit(main())
