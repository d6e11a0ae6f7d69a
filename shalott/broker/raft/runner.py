"""RaftRunner: one member of a Raft group, alive: the core with time, a disk and a network.

driver.py gives the core its events; here is what users of the group ask for.
"""

from __future__ import annotations

import asyncio

from shalott.broker.base.env import Env
from shalott.broker.raft import api
from shalott.broker.raft.api import RaftSettings, Role
from shalott.broker.raft.core import RaftCore, Recovered
from shalott.broker.raft.driver import CoreDriver
from shalott.broker.raft.group import (
    Busy,
    NotLeader,
    ProposalTimeout,
    StateMachine,
    Submitted,
    Transport,
    Watcher,
)
from shalott.broker.raft.storage import RaftStorage


class RaftRunner:
    """Implements broker.raft.group.RaftGroup. ``storage`` is open, and closed by its opener."""

    def __init__(
        self,
        env: Env,
        members: tuple[str, ...],
        *,
        settings: RaftSettings,
        storage: RaftStorage,
        transport: Transport,
        machine: StateMachine | None = None,
        watcher: Watcher | None = None,
        snapshot_threshold: int = 0,
    ) -> None:
        self._core = RaftCore(
            env.node_id,
            members,
            settings,
            Recovered(storage, storage.hard_state, storage.committed_index),
            random=env.rng.random,
            now_ms=env.clock.monotonic_ns() // 1_000_000,
            bugs=env.bugs,
        )
        self._driver = CoreDriver(
            env,
            self._core,
            storage,
            transport,
            machine=machine,
            watcher=watcher,
            snapshot_threshold=snapshot_threshold,
        )
        self._next_read = 0

    async def start(self) -> None:
        """Raises ConfigError if the port is taken."""
        await self._driver.start()

    async def stop(self) -> None:
        """What was proposed and is not committed stays undecided."""
        await self._driver.stop()

    # -- what it is --------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        return self._core.role

    @property
    def term(self) -> int:
        return self._core.term

    @property
    def leader(self) -> str:
        return self._core.leader

    @property
    def is_ready(self) -> bool:
        return self._driver.news.is_ready

    @property
    def committed_index(self) -> int:
        return self._core.commit_index

    @property
    def applied_index(self) -> int:
        return self._driver.applier.applied_index

    @property
    def waiting(self) -> int:
        return self._driver.applier.waiting + len(self._driver.reads)

    def matches(self) -> dict[str, int]:
        """A leader's: up to where each follower has the log durably."""
        return self._core.matches()

    # -- what can be asked of it -------------------------------------------------------------------

    def submit(self, data: bytes) -> Submitted:
        if not self._driver.is_running:
            raise NotLeader("")
        outcome = self._driver.propose(data)
        if isinstance(outcome, api.Append):
            entry = outcome.entries[0]
            committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            submitted = Submitted(entry.index, entry.term, committed)
            self._driver.applier.await_commit(submitted)
            self._driver.settle()
            return submitted
        if outcome.code == "NOT_LEADER":
            raise NotLeader(outcome.leader)
        raise Busy(outcome.code)

    async def propose(self, data: bytes, timeout_ms: float) -> int:
        submitted = self.submit(data)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await submitted.committed
        except TimeoutError as error:
            raise ProposalTimeout(f"entry {submitted.index} in {timeout_ms:g} ms") from error

    async def read_index(self, timeout_ms: float) -> int:
        driver = self._driver
        if not driver.is_running:
            raise NotLeader("")
        self._next_read += 1
        number = self._next_read
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        driver.asked(number, done)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await done
        except TimeoutError as error:
            raise ProposalTimeout(f"no quorum in {timeout_ms:g} ms") from error
        finally:
            driver.reads.pop(number, None)

    def transfer(self, to: str) -> None:
        self._driver.happened(api.TransferRequested(to))

    def connection_changed(self, member: str, is_up: bool) -> None:
        """For users that know of the members' connections: see api.ConnectionChanged."""
        self._driver.happened(api.ConnectionChanged(member, is_up))
