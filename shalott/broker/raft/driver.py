"""CoreDriver: gives the core of one member its events, and carries out what it answers.

The core hears the time when it needs it: before each event, and at ``next_tick_ms`` by a timer
(Alarm). The actions of a step are carried out in their order. The storage takes writes at once, and
one task makes them durable, with one flush for all that came meanwhile (LogWriter). The watcher
hears what changed after all actions of a step are done (News), so that it may propose in turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.base.errors import DiskFull, StorageError
from shalott.broker.base.tasks import Tasks
from shalott.broker.raft import api
from shalott.broker.raft.api import Role, Snapshot
from shalott.broker.raft.applier import BATCH_BYTES, Applier, fail
from shalott.broker.raft.core import RaftCore
from shalott.broker.raft.group import NotLeader, ProposalTimeout, StateMachine, Transport, Watcher
from shalott.broker.raft.storage import RaftStorage

log = logging.getLogger("shalott.broker.raft")

DISK_FULL_PAUSE_MS = 500


class CoreDriver:
    """``reads`` are the ReadIndex requests under way, by the number that the core has for them."""

    def __init__(
        self,
        env: Env,
        core: RaftCore,
        storage: RaftStorage,
        transport: Transport,
        *,
        machine: StateMachine | None,
        watcher: Watcher | None,
        snapshot_threshold: int,
    ) -> None:
        self.core = core
        self.applier = Applier(storage, machine, self._load_to_apply, env.witness)
        self.reads: dict[int, asyncio.Future[int]] = {}
        self.is_running = False
        self._env = env
        self._storage = storage
        self._transport = transport
        self._has_machine = machine is not None
        self._watcher = watcher
        self._snapshot_threshold = snapshot_threshold
        self._snapshot: Snapshot | None = None
        self._tasks = Tasks(lambda name, error: self._fail(f"{name}: {error!r}"))
        self._writer = LogWriter(storage, lambda mark: self.happened(api.Persisted(mark)))
        self.news = News(core, self.applier)
        self._settling = False
        self._submitting: api.Append | api.Refused | None = None
        self._alarm = Alarm(self._time_is_up, self._now_ms)

    async def start(self) -> None:
        """Raises ConfigError if the port is taken."""
        hard = self._storage.hard_state
        path, last_index = self._storage.path, self._storage.last_index
        self._env.witness("raft.began", path, hard.term, hard.voted_for, last_index)
        self.applier.begin()
        self.applier.apply_to(self.core.commit_index)
        self.is_running = True
        await self._transport.start(self._received)
        self._alarm.set(self.core.next_tick_ms)
        self._tasks.start(self._writer.run(), "raft flush")

    async def stop(self) -> None:
        """What was proposed and is not committed stays undecided."""
        self.is_running = False
        self._alarm.stop()
        self._end_waiting("the node stops")
        await self._tasks.end()
        await self._transport.stop()

    def _fail(self, reason: str) -> None:
        if not self.is_running:
            return
        log.error("raft: %s", reason)
        self.is_running = False
        self._alarm.stop()
        self._end_waiting(reason)
        if self._watcher is not None:
            self._watcher.failed(reason)

    def _end_waiting(self, reason: str) -> None:
        self.applier.end(ProposalTimeout(reason))
        reads, self.reads = self.reads, {}
        for done in reads.values():
            fail(done, ProposalTimeout(reason))

    def asked(self, number: int, done: asyncio.Future[int]) -> None:
        """``done`` gets the index of a read that begins now."""
        self.reads[number] = done
        members = self.core.member_count
        self._env.witness("raft.asked", self._storage.path, number, members)
        self.happened(api.ReadRequested(number))

    # -- events ------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._env.clock.monotonic_ns() // 1_000_000

    def happened(self, event: api.Event, *, settle: bool = True) -> None:
        """An event of now. A node that was paused hears of it before its timers."""
        now_ms = self._now_ms()
        if now_ms < self.core.next_tick_ms:
            self.core.tell_time(now_ms)
        else:
            self._step(api.Tick(now_ms))
        if isinstance(event, api.Propose):
            self._submitting = None
        self._step(event, settle=settle)

    def propose(self, data: bytes) -> api.Append | api.Refused:
        """What the core says to a proposal. What else follows from it waits for ``settle``."""
        self.happened(api.Propose(data), settle=False)
        outcome, self._submitting = self._submitting, None
        assert outcome is not None or not self.is_running
        return outcome or api.Refused("NOT_LEADER", "")

    def _time_is_up(self) -> None:
        try:
            self._step(api.Tick(self._now_ms()))
        except Exception as error:
            self._fail(f"raft timer: {error!r}")
        if (core := self.core).role == "leader":
            members, heard = core.member_count, core.heard_count()
            self._env.witness("raft.leads", self._storage.path, core.term, members, heard)

    def _received(self, sender: str, message: api.Message) -> None:
        self.happened(api.MessageReceived(sender, message))
        if isinstance(message, api.PushResponse):
            core, match = self.core, self.core.match_of(sender)
            self._env.witness("raft.counts", self._storage.path, core.term, sender, match)

    def _load_to_apply(self, first: int) -> None:
        async def load() -> None:
            entries = await self._storage.load(first, BATCH_BYTES)
            self.applier.loaded(list(entries), self.core.commit_index)
            self.settle()

        self._tasks.start(load(), "raft load to apply")

    async def _load_to_send(self, load: api.Load) -> None:
        entries = await self._storage.load(load.first, load.max_bytes)
        self.happened(api.Loaded(load.first, entries))

    def _step(self, event: api.Event, *, settle: bool = True) -> None:
        if not self.is_running:
            return
        try:
            for action in self.core.step(event):
                self._carry_out(action)
        except StorageError as error:  # a log that could not be cut takes no more
            self._fail(str(error))
            return
        if settle:
            self.settle()
        if self.is_running:
            self._alarm.set(self.core.next_tick_ms)

    # -- actions -----------------------------------------------------------------------------------

    def _carry_out(self, action: api.Action) -> None:
        match action:
            case api.Send(to, message):
                self._testify(to, message)
                self._transport.send(to, message)
            case api.Append(entries, mark):
                self._storage.append(entries)
                self._submitting = action
                self._writer.wrote(mark)
            case api.Persist(hard, mark):
                self._storage.set_hard_state(hard)
                self._env.witness("raft.term", self._storage.path, hard.term)
                self._writer.wrote(mark)
            case api.Truncate(from_index, mark):
                self._truncate(from_index)
                self._writer.wrote(mark)
            case api.Install(snapshot, mark):
                self._storage.install(snapshot)
                self.applier.restore(snapshot)
                self._writer.wrote(mark)
            case api.Compact(upto_index):
                self._compact(upto_index)
            case api.SendSnapshot(to, request):
                self._send_snapshot(to, request)
            case api.Load():
                self._tasks.start(self._load_to_send(action), "raft load to send")
            case api.Refused():
                self._submitting = action
            case api.ReadReady(number, index):
                core, path = self.core, self._storage.path
                self._env.witness("raft.read", path, number, core.term, index)
                if (done := self.reads.get(number)) is not None:
                    self.applier.await_applied(index, done)
            case api.ReadFailed(number, leader):
                if (done := self.reads.get(number)) is not None:
                    fail(done, NotLeader(leader))
            case api.BecomeLeader(term, _):
                witness, storage = self._env.witness, self._storage
                witness("raft.led", storage.path, term, storage.last_index, storage.term_at)
                self.news.role_changed("leader", term, self._env.node_id)
            case api.BecomeFollower(term, leader):
                self.news.role_changed("follower", term, leader)
            case api.BecomeCandidate(term):
                self.news.role_changed("candidate", term, "")
            case api.Commit(index):  # it is applied when the step is done: settle
                if (core := self.core).role == "leader":
                    storage, members = self._storage, core.member_count
                    entry = (index, storage.term_at(index), *storage.proofs.entry(index))
                    self._env.witness("raft.committed", storage.path, core.term, members, entry)

    def _testify(self, to: str, message: api.Message) -> None:
        """What ``message`` says of this member's disk."""
        witness, storage = self._env.witness, self._storage
        match message:
            case api.VoteResponse(term=term, result=api.VoteResult.ACCEPT, pre=False):
                last = storage.last_index
                end = storage.term_at(last), last
                witness("raft.voted", storage.path, term, to, end, *self._vote_on_disk(term, to))
            case api.VoteRequest(term=term, candidate=me, pre=False):
                end = message.last_term, message.last_index
                witness("raft.voted", storage.path, term, me, end, *self._vote_on_disk(term, me))
            case api.HeartbeatResponse(term=term, code=api.RaftCode.SUCCESS):
                witness("raft.follows", storage.path, term)
            case api.PushResponse(term=term, code=api.RaftCode.SUCCESS, match_index=index):
                proof = storage.proofs.entry(index)
                witness("raft.holds", storage.path, term, index, *proof)

    def _vote_on_disk(self, term: int, voted_for: str) -> tuple[str, bytes]:
        """No bytes once a later term stands there."""
        path, text = self._storage.proofs.vote(term, voted_for)
        return path, text if self._storage.hard_state.term == term else b""

    def _truncate(self, from_index: int) -> None:
        last_index = self._storage.last_index
        self._env.witness("raft.cut", self._storage.path, from_index)
        self._storage.truncate(from_index)
        self.news.truncated(from_index, last_index)
        if from_index > self.applier.applied_index:
            return
        if self._has_machine:
            self._fail(f"entries from {from_index} on were applied and are not committed")
        else:
            self.applier.applied_index = from_index - 1
            self.news.told_commit = from_index - 1

    def _compact(self, upto_index: int) -> None:
        snapshot, self._snapshot = self._snapshot, None
        assert snapshot is not None and snapshot.index == upto_index
        self._storage.compact(snapshot)
        self.applier.snapshot_index = upto_index

    def _send_snapshot(self, to: str, request: api.PushRequest) -> None:
        snapshot = self._storage.snapshot
        if snapshot is not None:
            full = msgspec.structs.replace(
                request, snapshot=snapshot, prev_index=snapshot.index, prev_term=snapshot.term
            )
            self._transport.send(to, full)

    # -- after a step ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Apply, take snapshots, tell the watcher; also what that leads to."""
        if self._settling:
            return
        self._settling = True
        try:
            while self.is_running:
                applier, commit_index = self.applier, self.core.commit_index
                if applier.applied_index < commit_index:
                    applier.apply_to(commit_index)
                grown = applier.applied_index - applier.snapshot_index
                if 0 < self._snapshot_threshold <= grown:
                    self._take_snapshot()
                if not self.news.tell_one(self._watcher):
                    break
        finally:
            self._settling = False

    def _take_snapshot(self) -> None:
        if self.core.durable_index < self.applier.applied_index:
            return  # soon
        self._snapshot = self.applier.take_snapshot()
        if self._snapshot is not None:
            self._step(api.SnapshotTaken(self._snapshot.index), settle=False)


class LogWriter:
    """Makes durable what the storage took. ``persisted`` hears up to which mark it is."""

    def __init__(self, storage: RaftStorage, persisted: Callable[[int], None]) -> None:
        self._storage = storage
        self._persisted = persisted
        self._mark = 0
        self._dirty = asyncio.Event()

    def wrote(self, mark: int) -> None:
        self._mark = mark
        self._dirty.set()

    async def run(self) -> None:
        """Until cancelled. Raises StorageError."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            mark = self._mark
            try:
                await self._storage.flush()
            except DiskFull as error:
                log.warning("raft: %s", error)
                self._dirty.set()
                await asyncio.sleep(DISK_FULL_PAUSE_MS / 1000)
                continue
            self._persisted(mark)


class News:
    """What the watcher has not heard yet, in order."""

    def __init__(self, core: RaftCore, applier: Applier) -> None:
        self.told_commit = core.commit_index
        self._core = core
        self._applier = applier
        self._ready_term = 0
        self._pending: deque[Callable[[Watcher], None]] = deque()

    @property
    def is_ready(self) -> bool:
        """The member leads, and has applied all that former leaders committed."""
        core = self._core
        return core.role == "leader" and self._applier.applied_index >= core.tenure_index

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        self._pending.append(lambda watcher: watcher.role_changed(role, term, leader))

    def truncated(self, from_index: int, last_index: int) -> None:
        self._pending.append(lambda watcher: watcher.truncated(from_index, last_index))

    def tell_one(self, watcher: Watcher | None) -> bool:
        """Whether there was anything to tell."""
        applied = self._applier.applied_index
        if applied > self.told_commit:
            self.told_commit = applied
            self._pending.append(lambda watcher: watcher.committed(applied))
        if (term := self._core.term) != self._ready_term and self.is_ready:
            self._ready_term = term
            self._pending.append(lambda watcher: watcher.leader_ready(term))
        if not self._pending:
            return False
        news = self._pending.popleft()
        if watcher is not None:
            news(watcher)
        return True


class Alarm:
    """One timer, moved ahead as needed. ``ring`` is called in the event loop, once for each ``set``
    that was not overtaken.

    It is never put off: one that goes off too early only finds that there is nothing to do yet, and
    that costs less than a new timer each time.
    """

    def __init__(self, ring: Callable[[], None], now_ms: Callable[[], int]) -> None:
        self._ring = ring
        self._now_ms = now_ms
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self, due_ms: int) -> None:
        """Ring at ``due_ms`` of the clock, or before."""
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(1, due_ms - self._now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._is_up)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_up(self) -> None:
        self._timer = None
        self._ring()
