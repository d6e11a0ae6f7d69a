"""``shalott`` in the world in memory, as a process: python -m tests.harness.memory_cli ARGS."""

from __future__ import annotations

import sys
from collections.abc import Callable

from harness import planning, session
from harness.cli import run_command
from harness.plan import Plan
from harness.planning import Request
from harness.stage import World
from harness.store import RunDirectory
from tests.harness.memory_world import MemoryWorld, Trap
from workloads import registry


def install(trap: Trap, patch: Callable[[object, str, object], None] = setattr) -> MemoryWorld:
    """Put the world in memory where the command line looks for worlds."""
    memory = MemoryWorld(trap)

    def build_world(plan: Plan, directory: RunDirectory) -> World:
        return memory.world(plan)

    def choose_backend(request: Request) -> tuple[str, str]:
        return "memory", "this is a test"

    patch(session, "build_world", build_world)
    patch(session, "choose_backend", choose_backend)
    patch(planning, "SYSTEMS", ("mirrored", "rabbitmq", "memory"))
    patch(registry, "WORKLOADS", {**registry.WORKLOADS, "memory": memory.recipe})
    return memory


def main() -> int:
    memory = install(Trap())
    code = run_command(sys.argv[1:])
    print("calls", " ".join(memory.cluster.calls))  # noqa: T201 - what the test reads
    return code


if __name__ == "__main__":
    sys.exit(main())
