"""RaftRunner: one member of a Raft group, alive: the core with time, a disk and a network.

Time is told when the core needs it: before each event, and at ``next_tick_ms`` by a timer.
Everything the core says is done in the order in which it is said. Writes are taken by the storage
at once and made durable by one task, a flush for all that came meanwhile; the core hears of it and
lets go what waited for it. Whoever watches is told after all actions of a step are done, so that it
may propose in turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.base.errors import DiskFull
from shalott.broker.raft import api
from shalott.broker.raft.api import RaftSettings, Role, Snapshot
from shalott.broker.raft.applier import BATCH_BYTES, Applier, fail
from shalott.broker.raft.core import RaftCore
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

log = logging.getLogger("shalott.broker.raft")

DISK_FULL_PAUSE_MS = 500


class RaftRunner:
    """Implements broker.raft.group.RaftGroup. ``storage`` is open, and closed by who opened it."""

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
        self._env = env
        self._storage = storage
        self._transport = transport
        self._watcher = watcher
        self._snapshot_threshold = snapshot_threshold
        self._applier = Applier(storage, machine, self._load_to_apply)
        self._has_machine = machine is not None
        self._core = RaftCore(
            env.node_id,
            members,
            settings,
            storage,
            hard=storage.hard_state,
            committed_index=storage.committed_index,
            random=env.rng.random,
            now_ms=self._now_ms(),
            bugs=env.bugs,
        )
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._written_mark = 0
        self._dirty = asyncio.Event()
        self._snapshot: Snapshot | None = None
        self._reads: dict[int, asyncio.Future[int]] = {}
        self._next_read = 0
        self._news: deque[Callable[[Watcher], None]] = deque()
        self._settling = False
        self._told_commit = self._core.commit_index
        self._ready_term = 0
        self._submitting: api.Append | api.Refused | None = None
        self._alarm = Alarm(self._time_is_up)
        self._running = False

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises ConfigError if the port is taken."""
        self._applier.begin()
        self._applier.apply_to(self._core.commit_index)
        self._running = True
        await self._transport.start(self._received)
        self._alarm.set(self._core.next_tick_ms, self._now_ms())
        self._spawn(self._flush(), "raft flush")

    async def stop(self) -> None:
        """What was proposed and is not committed stays undecided."""
        self._running = False
        self._alarm.stop()
        self._end_waiting("the node stops")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._transport.stop()

    def _fail(self, reason: str) -> None:
        if not self._running:
            return
        log.error("raft: %s", reason)
        self._running = False
        self._alarm.stop()
        self._end_waiting(reason)
        if self._watcher is not None:
            self._watcher.failed(reason)

    def _end_waiting(self, reason: str) -> None:
        self._applier.end(ProposalTimeout(reason))
        reads, self._reads = self._reads, {}
        for done in reads.values():
            fail(done, ProposalTimeout(reason))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"{task.get_name()}: {error!r}")

    # -- RaftGroup ---------------------------------------------------------------------------------

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
        core = self._core
        return core.role == "leader" and self.applied_index >= core.tenure_index

    @property
    def committed_index(self) -> int:
        return self._core.commit_index

    @property
    def applied_index(self) -> int:
        return self._applier.applied_index

    def matches(self) -> dict[str, int]:
        """A leader's: up to where each follower has the log durably."""
        return self._core.matches()

    def submit(self, data: bytes) -> Submitted:
        if not self._running:
            raise NotLeader("")
        self._pass_time()
        self._submitting = None
        self._step(api.Propose(data), settle=False)
        outcome, self._submitting = self._submitting, None
        if isinstance(outcome, api.Append):
            entry = outcome.entries[0]
            committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            submitted = Submitted(entry.index, entry.term, committed)
            self._applier.await_commit(submitted)
            self._settle()
            return submitted
        assert isinstance(outcome, api.Refused)
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
        if not self._running:
            raise NotLeader("")
        self._next_read += 1
        number = self._next_read
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reads[number] = done
        self._pass_time()
        self._step(api.ReadRequested(number))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await done
        except TimeoutError as error:
            raise ProposalTimeout(f"no quorum in {timeout_ms:g} ms") from error
        finally:
            self._reads.pop(number, None)

    def transfer(self, to: str) -> None:
        self._pass_time()
        self._step(api.TransferRequested(to))

    def connection_changed(self, member: str, is_up: bool) -> None:
        """For who knows of the members' connections: see api.ConnectionChanged."""
        self._pass_time()
        self._step(api.ConnectionChanged(member, is_up))

    # -- events ------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._env.clock.monotonic_ns() // 1_000_000

    def _pass_time(self) -> None:
        """Also before each event: a node that was paused hears of messages before its timers."""
        now_ms = self._now_ms()
        tick = api.Tick(now_ms)
        if now_ms < self._core.next_tick_ms:
            self._core.step(tick)
        else:
            self._step(tick)

    def _time_is_up(self) -> None:
        try:
            self._step(api.Tick(self._now_ms()))
        except Exception as error:
            self._fail(f"raft timer: {error!r}")

    def _received(self, sender: str, message: api.Message) -> None:
        self._pass_time()
        self._step(api.MessageReceived(sender, message))

    async def _flush(self) -> None:
        """Make durable what was written, and let the core know."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            mark = self._written_mark
            try:
                await self._storage.flush()
            except DiskFull as error:
                log.warning("raft: %s", error)
                self._dirty.set()
                await asyncio.sleep(DISK_FULL_PAUSE_MS / 1000)
                continue
            self._pass_time()
            self._step(api.Persisted(mark))

    def _load_to_apply(self, first: int) -> None:
        async def load() -> None:
            entries = await self._storage.load(first, BATCH_BYTES)
            self._applier.loaded(list(entries), self._core.commit_index)
            self._settle()

        self._spawn(load(), "raft load to apply")

    async def _load_to_send(self, load: api.Load) -> None:
        entries = await self._storage.load(load.first, load.max_bytes)
        self._pass_time()
        self._step(api.Loaded(load.first, entries))

    def _step(self, event: api.Event, *, settle: bool = True) -> None:
        if not self._running:
            return
        for action in self._core.step(event):
            self._carry_out(action)
        if settle:
            self._settle()
        if self._running:
            self._alarm.set(self._core.next_tick_ms, self._now_ms())

    # -- actions -----------------------------------------------------------------------------------

    def _carry_out(self, action: api.Action) -> None:
        match action:
            case api.Send(to, message):
                self._transport.send(to, message)
            case api.Append(entries, mark):
                self._storage.append(entries)
                self._submitting = action
                self._wrote(mark)
            case api.Persist(hard, mark):
                self._storage.set_hard_state(hard)
                self._wrote(mark)
            case api.Truncate(from_index, mark):
                self._truncate(from_index)
                self._wrote(mark)
            case api.Install(snapshot, mark):
                self._storage.install(snapshot)
                self._applier.restore(snapshot)
                self._wrote(mark)
            case api.Compact(upto_index):
                self._compact(upto_index)
            case api.SendSnapshot(to, request):
                self._send_snapshot(to, request)
            case api.Load():
                self._spawn(self._load_to_send(action), "raft load to send")
            case api.Refused():
                self._submitting = action
            case api.ReadReady(number, index):
                if (done := self._reads.get(number)) is not None:
                    self._applier.await_applied(index, done)
            case api.ReadFailed(number, leader):
                if (done := self._reads.get(number)) is not None:
                    fail(done, NotLeader(leader))
            case api.BecomeLeader(term, _):
                self._role_changed("leader", term, self._env.node_id)
            case api.BecomeFollower(term, leader):
                self._role_changed("follower", term, leader)
            case api.BecomeCandidate(term):
                self._role_changed("candidate", term, "")
            case api.Commit():
                pass  # what is committed is applied when the step is done: _settle

    def _wrote(self, mark: int) -> None:
        self._written_mark = mark
        self._dirty.set()

    def _role_changed(self, role: Role, term: int, leader: str) -> None:
        self._news.append(lambda watcher: watcher.role_changed(role, term, leader))

    def _truncate(self, from_index: int) -> None:
        last_index = self._storage.last_index
        self._storage.truncate(from_index)
        self._news.append(lambda watcher: watcher.truncated(from_index, last_index))
        if from_index > self.applied_index:
            return
        if self._has_machine:
            self._fail(f"entries from {from_index} on were applied and are not committed")
        else:
            self._applier.applied_index = from_index - 1
            self._told_commit = from_index - 1

    def _compact(self, upto_index: int) -> None:
        snapshot, self._snapshot = self._snapshot, None
        assert snapshot is not None and snapshot.index == upto_index
        self._storage.compact(snapshot)
        self._applier.snapshot_index = upto_index

    def _send_snapshot(self, to: str, request: api.PushRequest) -> None:
        snapshot = self._storage.snapshot
        if snapshot is not None:
            full = msgspec.structs.replace(
                request,
                snapshot=snapshot,
                prev_index=snapshot.index,
                prev_term=snapshot.term,
            )
            self._transport.send(to, full)

    # -- after a step ------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Apply, take snapshots, tell the watcher; also what that leads to."""
        if self._settling:
            return
        self._settling = True
        try:
            while self._running and self._settle_once():
                pass
        finally:
            self._settling = False

    def _settle_once(self) -> bool:
        """Whether there was anything to do."""
        commit_index = self._core.commit_index
        self._applier.apply_to(commit_index)
        self._take_snapshot_if_due()
        applied = self.applied_index
        if applied > self._told_commit:
            self._told_commit = applied
            self._news.append(lambda watcher: watcher.committed(applied))
        if self.is_ready and self._ready_term != self.term:
            self._ready_term = term = self.term
            self._news.append(lambda watcher: watcher.leader_ready(term))
        if not self._news:
            return False
        news = self._news.popleft()
        if self._watcher is not None:
            news(self._watcher)
        return True

    def _take_snapshot_if_due(self) -> None:
        due = self._applier.snapshot_index + self._snapshot_threshold
        if not self._snapshot_threshold or self.applied_index < due:
            return
        if self._core.durable_index < self.applied_index:
            return  # soon
        self._snapshot = self._applier.take_snapshot()
        if self._snapshot is not None:
            self._step(api.SnapshotTaken(self._snapshot.index), settle=False)


# -- the timer -------------------------------------------------------------------------------------
# Alarm: one timer that is moved ahead as needed, for who knows when it next has something to do.
#
# It is never put off: one that goes off too early only finds that there is nothing to do yet, and
# that costs less than a new timer each time.


class Alarm:
    """``ring`` is called in the event loop, once for each ``set`` that was not overtaken."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self, due_ms: int, now_ms: int) -> None:
        """Ring at ``due_ms`` of a clock that shows ``now_ms``, or before."""
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(1, due_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._is_up)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_up(self) -> None:
        self._timer = None
        self._ring()
