"""The explorer: random schedules of everything that can go wrong between members, from a seed.

Messages are delayed, lost, repeated and overtaken; links are cut in one direction or both; members
crash with some of their writes, pause, and have clocks that run fast or slow; disks are slow;
entries are proposed and reads asked for all the time; snapshots are taken. Then everything is
healed, and the group must make progress.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shalott.broker.raft import api
from tests.world.raft.model import FAST, Group, Violation

TICK_MS = 10
CHAOS_MS = 3000
PROGRESS_MS = 4000


@dataclass(frozen=True)
class Chaos:
    """How bad it gets. Probabilities are of each message, or of each 100 ms; ``spite`` is that a
    member dies for a moment just when it has something to write, ``regicide`` that a leader does
    just when it was told that a follower has something."""

    loss: float = 0.03
    repeat: float = 0.05
    slow: float = 0.1
    crash: float = 0.12
    cut: float = 0.25
    pause: float = 0.06
    slow_disk: float = 0.1
    snapshot: float = 0.15
    transfer: float = 0.03
    spite: float = 0.0
    regicide: float = 0.0
    exile: float = 0.0  # each 100 ms: a leader is cut off from everybody
    rumour: float = 0.0  # each 100 ms: a member hears of a connection, and it need not be true


SPITEFUL = Chaos(spite=0.02, regicide=0.02, slow_disk=0.2, crash=0.02)


class Explorer:
    def __init__(
        self,
        seed: int,
        *,
        names: str = "abc",
        chaos: Chaos | None = None,
        settings: api.RaftSettings = FAST,
        bugs: tuple[str, ...] = (),
    ) -> None:
        self.random = random.Random(seed)
        self.chaos = Chaos() if chaos is None else chaos
        self.now_ms = 0
        self._seq = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._persisting: dict[str, bool] = dict.fromkeys(names, False)
        self.cuts: dict[tuple[str, str], int] = {}
        self.paused: dict[str, int] = {}
        self.slow_disks: dict[str, int] = {}
        self.rates = {name: self.random.choice((0.8, 1.0, 1.0, 1.25)) for name in names}
        self.healed = False
        self._values = 0
        self.group = Group(names, post=self._post, settings=settings, bugs=bugs, seed=seed)
        for name in names:
            self._later(self.random.randrange(TICK_MS), self._tick, name)
        self._later(5, self._client)
        self._later(100, self._nemesis)

    def run(self) -> None:
        """Raises Violation."""
        self._run_until(CHAOS_MS)
        self._heal()
        self._expect_progress()

    def _later(self, delay_ms: int, call: Callable[..., None], *args: Any) -> None:
        self._seq += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._seq, call, args))

    def _run_until(self, end_ms: int, done: Callable[[], bool] | None = None) -> bool:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, call, args = heapq.heappop(self._queue)
            call(*args)
            if done is not None and done():
                return True
        self.now_ms = end_ms
        return False

    # -- members -----------------------------------------------------------------------------------

    def _is_up(self, name: str) -> bool:
        return self.group.members[name].core is not None

    def _tick(self, name: str) -> None:
        self._later(TICK_MS, self._tick, name)
        if self._is_up(name) and name not in self.paused:
            self.group.tick(name, int(self.now_ms * self.rates[name]))
            self._look_after(name)

    def _look_after(self, name: str) -> None:
        """After a step: writes begin, loads are answered."""
        member = self.group.members[name]
        if member.writes and self._strikes(self.chaos.spite):
            self._crash(name, self.random.choice((1, 5, 20, 200)))
            return
        if member.writes and not self._persisting[name]:
            self._persisting[name] = True
            delay_ms = self.random.randrange(1, 5)
            if name in self.slow_disks:
                delay_ms = self.random.randrange(5, 200)
            self._later(delay_ms, self._persist, name, member.life, len(member.writes))
        while self.group.loads:
            self._later(self.random.randrange(1, 10), self._load, *self.group.loads.popleft())

    def _persist(self, name: str, life: int, count: int) -> None:
        if self.group.members[name].life != life or not self._is_up(name):
            return
        if name in self.paused:
            self._later(TICK_MS, self._persist, name, life, count)
            return
        self._persisting[name] = False
        self.group.persist(name, count)
        self._look_after(name)

    def _load(self, name: str, life: int, load: api.Load) -> None:
        member = self.group.members[name]
        if member.life == life and self._is_up(name):
            entries = member.disk.read(load.first, load.max_bytes)
            self.group.step(name, api.Loaded(load.first, entries))
            self._look_after(name)

    # -- network -----------------------------------------------------------------------------------

    def _post(self, sender: str, to: str, message: api.Message) -> None:
        self.group.note_vote(sender, to, message)
        copies = 1
        if not self.healed:
            if self.random.random() < self.chaos.loss:
                return
            copies += self.random.random() < self.chaos.repeat
        for _ in range(copies):
            delay_ms = self.random.randrange(1, 6)
            if not self.healed and self.random.random() < self.chaos.slow:
                delay_ms = self.random.randrange(5, 250)
            self._later(delay_ms, self._deliver, sender, to, message)

    def _deliver(self, sender: str, to: str, message: api.Message) -> None:
        if self.cuts.get((sender, to), 0) > self.now_ms or not self._is_up(to):
            return
        if to in self.paused:
            self._later(TICK_MS, self._deliver, sender, to, message)
            return
        self.group.deliver(sender, to, message)
        if isinstance(message, api.PushResponse) and self._strikes(self.chaos.regicide):
            self._crash(to)
        else:
            self._look_after(to)

    # -- clients -----------------------------------------------------------------------------------

    def _client(self) -> None:
        self._later(self.random.randrange(4, 30), self._client)
        up = [name for name in self.group.members if self._is_up(name) and name not in self.paused]
        if not up:
            return
        leading = [name for name in up if self.group.members[name].core.role == "leader"]  # type: ignore[union-attr]
        name = self.random.choice(leading or up)
        if self.random.random() < 0.3:
            self.group.read(name)
        else:
            self._values += 1
            self.group.propose(name, b"value %d" % self._values)
        self._look_after(name)

    # -- faults ------------------------------------------------------------------------------------

    def _nemesis(self) -> None:
        if self.healed:
            return
        self._later(100, self._nemesis)
        chaos, names = self.chaos, list(self.group.members)
        leader = self.group.leader()
        if leader and self._strikes(chaos.exile):
            self._exile(leader)
        if self._strikes(chaos.rumour):
            self._rumour(*self.random.sample(names, 2))
        for chance, fault in (
            (chaos.crash, self._crash),
            (chaos.cut, self._cut),
            (chaos.pause, self._pause),
            (chaos.slow_disk, self._slow_disk),
            (chaos.snapshot, self._snapshot),
            (chaos.transfer, self._transfer),
        ):
            if self.random.random() < chance:
                fault(self.random.choice(names))

    def _duration_ms(self) -> int:
        return self.random.choice((60, 200, 500, 1200))

    def _strikes(self, chance: float) -> bool:
        return chance > 0 and not self.healed and self.random.random() < chance

    def _crash(self, name: str, duration_ms: int | None = None) -> None:
        if self._is_up(name):
            kept = self.random.randrange(len(self.group.members[name].writes) + 1)
            self.group.crash(name, kept)
            self._persisting[name] = False
            after_ms = self._duration_ms() if duration_ms is None else duration_ms
            self._later(after_ms, self._restart, name)

    def _restart(self, name: str) -> None:
        if not self._is_up(name):
            self.group.start(name)

    def _cut(self, name: str) -> None:
        end_ms = self.now_ms + self._duration_ms()
        others = [other for other in self.group.members if other != name]
        self.random.shuffle(others)
        way = self.random.randrange(3)
        for other in others[: self.random.randrange(1, len(others) + 1)]:
            if way != 0:
                self.cuts[name, other] = end_ms
            if way != 1:
                self.cuts[other, name] = end_ms

    def _exile(self, name: str) -> None:
        end_ms = self.now_ms + self._duration_ms()
        for other in self.group.members:
            if other != name:
                self.cuts[name, other] = self.cuts[other, name] = end_ms

    def _pause(self, name: str) -> None:
        if name not in self.paused:
            duration_ms = self._duration_ms()
            self.paused[name] = self.now_ms + duration_ms
            self._later(duration_ms, self._resume, name)

    def _resume(self, name: str) -> None:
        """A client may be faster than the member's own timers."""
        was_paused = self.paused.pop(name, None) is not None
        if was_paused and self._is_up(name) and self.random.random() < 0.5:
            self.group.read(name)
            self._look_after(name)

    def _slow_disk(self, name: str) -> None:
        if name in self.slow_disks:
            del self.slow_disks[name]
        else:
            self.slow_disks[name] = 1

    def _snapshot(self, name: str) -> None:
        if self._is_up(name):
            member = self.group.members[name]
            self.group.take_snapshot(name)
            member.disk.cold = self.random.randrange(member.disk.last_index + 1)
            self._look_after(name)

    def _rumour(self, name: str, other: str) -> None:
        if self._is_up(name) and name not in self.paused:
            self.group.step(name, api.ConnectionChanged(other, self.random.random() < 0.5))
            self._look_after(name)

    def _transfer(self, name: str) -> None:
        leader = self.group.leader()
        if leader and leader not in self.paused:
            self.group.step(leader, api.TransferRequested(name))

    # -- and then ----------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.healed = True
        self.cuts.clear()
        self.paused.clear()
        self.slow_disks.clear()
        for name in self.group.members:
            self._restart(name)

    def _expect_progress(self) -> None:
        goal = self.group.acked_index
        end_ms = self.now_ms + PROGRESS_MS
        acked_before = len(self.group.acked)

        def makes_progress() -> bool:
            return len(self.group.acked) > acked_before + 20

        if not self._run_until(end_ms, makes_progress):
            raise Violation("liveness", f"nothing is acknowledged; leader {self.group.leader()!r}")
        goal = self.group.acked_index

        def all_have_it() -> bool:
            return all(member.commit >= goal for member in self.group.members.values())

        if not self._run_until(end_ms, all_have_it):
            ends = {name: member.commit for name, member in self.group.members.items()}
            raise Violation("liveness", f"not everywhere is {goal}: {ends}")
        self._check_nothing_lost()

    def _check_nothing_lost(self) -> None:
        for name, member in self.group.members.items():
            held = {entry.data: entry.index for entry in member.applied}
            for data, index in self.group.acked.items():
                if index <= member.commit and held.get(data) != index:
                    raise Violation("acknowledged", f"{data!r} at {index} is not on {name}")
        if not self.group.reads_done:
            raise Violation("liveness", "no read was answered")
