"""A group whose schedule a test writes: time passes for whom the test says, messages arrive at once
where links are not cut, and disks are as fast as the test wants.
"""

from __future__ import annotations

from collections import deque

import msgspec

from shalott.broker.raft import api
from tests.world.raft.model import FAST, Group

PLAIN = msgspec.structs.replace(FAST, no_op_on_election=False, max_push_bytes=1 << 20)
TICK_MS = 10


class Script:
    """``slow_disks``: members whose writes wait for ``group.persist``."""

    def __init__(
        self,
        names: str,
        *bugs: str,
        settings: api.RaftSettings = PLAIN,
        watch_committed: bool = True,
    ) -> None:
        self.sent: deque[tuple[str, str, api.Message]] = deque()
        self.cuts: dict[tuple[str, str], None] = {}
        self.slow_disks: dict[str, None] = {}
        self.group = Group(
            names,
            post=lambda sender, to, message: self.sent.append((sender, to, message)),
            settings=settings,
            bugs=bugs,
        )
        self.group.watch_committed = watch_committed
        self.leaders_seen: list[tuple[int, str]] = []

    def up(self) -> list[str]:
        return [name for name, member in self.group.members.items() if member.core is not None]

    def settle(self) -> None:
        """Until nothing is under way."""
        busy = True
        while busy:
            busy = bool(self.sent)
            while self.sent:
                sender, to, message = self.sent.popleft()
                if to in self.up() and (sender, to) not in self.cuts:
                    self.group.deliver(sender, to, message)
            for name in self.up():
                if self.group.members[name].writes and name not in self.slow_disks:
                    self.group.persist(name)
                    busy = True

    def pass_time(self, duration_ms: int, names: str = "") -> None:
        """For these members only, or for all."""
        for _ in range(duration_ms // TICK_MS):
            for name in names or "".join(self.group.members):
                member = self.group.members[name]
                if member.core is not None:
                    self.group.tick(name, member.clock_ms + TICK_MS)
                else:
                    member.clock_ms += TICK_MS
            self.settle()

    def isolate(self, *sides: str) -> None:
        """From now on messages pass within a side only."""
        self.cuts = {
            (a, b): None
            for left in sides
            for right in sides
            if left != right
            for a in left
            for b in right
        }

    def heal(self) -> None:
        self.cuts = {}

    def elect(self, name: str) -> None:
        """Let the others forget their leader, and only this member stand."""
        voters = [other for other in self.up() if other != name]
        cuts, self.cuts = self.cuts, {(a, b): None for a in self.up() for b in self.up()}
        self.pass_time(self.group.settings.leak_ms + TICK_MS, "".join(voters))
        self.cuts = cuts
        for _ in range(40):
            self.pass_time(TICK_MS, name)
            if self.role(name) == "leader":
                return
        raise AssertionError(f"{name} is not elected")

    def propose(self, name: str, *values: bytes) -> None:
        for value in values:
            assert self.group.propose(name, value)
        self.settle()

    def role(self, name: str) -> str:
        core = self.group.members[name].core
        return "down" if core is None else core.role

    def term(self, name: str) -> int:
        core = self.group.members[name].core
        assert core is not None
        return core.term

    def commit(self, name: str) -> int:
        core = self.group.members[name].core
        assert core is not None
        return core.commit_index

    def log(self, name: str) -> list[bytes]:
        return [entry.data for entry in self.group.members[name].tail]
