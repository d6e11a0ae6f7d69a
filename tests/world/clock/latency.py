"""How long frames, rows, calls of a disk and the news of a death take in a cluster of tests."""

from __future__ import annotations

import asyncio
import random

from shalott.cluster.sim.loop.loop import SimLoop


def sim() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop), "run the test with tests.world.rabbit.queues.run"
    return loop


class Latency:
    """Mostly short, now and then long."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"{seed}-latency")
        self._last_ns: dict[tuple[str, str], int] = {}  # of what went this way

    def draw_ns(self) -> int:
        longest_ms = 0.5 if self._rng.random() < 0.95 else 10.0
        return int(self._rng.random() * longest_ms * 1e6)

    def draw_s(self) -> float:
        return self.draw_ns() / 1e9

    def arrival_ns(self, source: str, target: str) -> int:
        """When something sent now arrives: never before what was sent the same way."""
        way = (source, target)
        self._last_ns[way] = max(self._last_ns.get(way, 0), sim().now_ns + self.draw_ns())
        return self._last_ns[way]

    def loss_ns(self, source: str, target: str) -> int:
        """When ``target`` sees that ``source`` died. All that was under way arrives before, or
        only some of it.
        """
        now_ns, last_ns = sim().now_ns, self.arrival_ns(source, target)
        return last_ns if self._rng.random() < 0.5 else now_ns + self.draw_ns()


class Steady(Latency):
    """Everything takes its tenth of a millisecond."""

    def draw_ns(self) -> int:
        return 100_000
