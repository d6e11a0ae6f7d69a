"""``shalott`` in the world in memory, as a process: python -m tests.harness.memory_cli ARGS.

The environment variable TRAP holds the trap's fields as JSON.
"""

from __future__ import annotations

import json
import os
import sys

from harness import planning, session
from harness.cli import run_command
from harness.errors import HarnessError
from harness.plan import Plan
from harness.planning import Request
from harness.stage import World
from harness.store import RunDirectory
from tests.harness.memory_world import MemoryWorld, Trap
from workloads.registry import WORKLOADS


def main() -> int:
    trap = Trap(**json.loads(os.environ.get("TRAP", "{}")))
    trap.error = lambda: HarnessError("planted")
    memory = MemoryWorld(trap)
    WORKLOADS["memory"] = memory.recipe  # type: ignore[index]

    def build_world(plan: Plan, directory: RunDirectory) -> World:
        return memory.world(plan)

    def choose_backend(request: Request) -> tuple[str, str]:
        return "memory", "this is a test"

    session.build_world = build_world
    session.choose_backend = choose_backend
    planning.SYSTEMS = (*planning.SYSTEMS, "memory")  # type: ignore[assignment]
    code = run_command(sys.argv[1:])
    print("calls", " ".join(memory.cluster.calls))  # noqa: T201 - what the test reads
    return code


if __name__ == "__main__":
    sys.exit(main())
