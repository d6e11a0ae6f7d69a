"""A group of consensus cores in a model world, and the properties of Raft, checked at every step.

``Group`` has the members, their disks and the properties. It delivers nothing by itself: scripted
scenarios and the explorer (explorer.py) say what happens when. A disk keeps what was written only
when the write is persisted; a crash loses the writes after some of them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from shalott.broker.raft import api
from shalott.broker.raft.api import RaftCode
from shalott.broker.raft.core import RETRY_MS, RaftCore, Recovered

FAST = api.RaftSettings(
    heartbeat_interval_ms=50,
    max_heartbeat_leak=3,
    vote_min_ms=30,
    vote_max_ms=100,
    push_timeout_ms=80,
    commit_push_interval_ms=60,
    max_inflight_pushes=4,
    max_push_bytes=24,
    max_pending_entries=200,
    no_op_on_election=True,
)


class Violation(AssertionError):
    """A property does not hold. ``name`` says which."""

    def __init__(self, name: str, story: str) -> None:
        super().__init__(f"{name}: {story}")
        self.name = name


class ModelDisk:
    """What is durable of one member; implements broker.raft.storage.LogView. Entries below ``cold``
    are not in memory."""

    def __init__(self) -> None:
        self.hard = api.HardState()
        self.snapshot: api.Snapshot | None = None
        self.log: list[api.Entry] = []
        self.cold = 0

    @property
    def base(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.index

    @property
    def first_index(self) -> int:
        return self.base + 1

    @property
    def last_index(self) -> int:
        return self.base + len(self.log)

    def term_at(self, index: int) -> int:
        if index == self.base:
            return 0 if self.snapshot is None else self.snapshot.term
        return self.log[index - self.base - 1].term

    def read(self, first: int, max_bytes: int) -> list[api.Entry]:
        found: list[api.Entry] = []
        for entry in self.log[max(0, first - self.base - 1) :]:
            max_bytes -= len(entry.data)
            if found and max_bytes < 0:
                break
            found.append(entry)
        return found if first > self.base else []

    def entries(self, first: int, max_bytes: int) -> Sequence[api.Entry] | None:
        return None if first < self.cold else self.read(first, max_bytes)

    def write(self, action: api.Action) -> None:
        match action:
            case api.Persist(hard, _):
                if hard.term < self.hard.term:
                    raise Violation("term monotonic", f"{self.hard} -> {hard}")
                self.hard = hard
            case api.Append(entries, _):
                assert entries[0].index == self.last_index + 1
                self.log += entries
            case api.Truncate(from_index, _):
                assert from_index > self.base
                del self.log[from_index - self.base - 1 :]
            case api.Install(snapshot, _):
                self.snapshot = snapshot
                self.log = []


@dataclass
class Member:
    """``core`` is None while it is down. ``applied`` is its state machine."""

    name: str
    clock_ms: int = 0
    disk: ModelDisk = field(default_factory=ModelDisk)
    core: RaftCore | None = None
    life: int = 0
    commit: int = 0
    applied: list[api.Entry] = field(default_factory=list)
    writes: deque[api.Action] = field(default_factory=deque)
    tail: list[api.Entry] = field(default_factory=list)  # the log, durable or not
    tail_base: int = 0


@dataclass
class Reading:
    id: int
    member: str
    life: int
    must_see: int  # the last index that was acknowledged to anybody when it began
    index: int | None = None


class Group:
    """``post(sender, to, message)`` is called for what members send."""

    def __init__(
        self,
        names: str,
        *,
        post: Callable[[str, str, api.Message], None],
        settings: api.RaftSettings = FAST,
        bugs: tuple[str, ...] = (),
        seed: int = 0,
    ) -> None:
        self.members = {name: Member(name) for name in names}
        self.post = post
        self.settings = settings
        self.bugs = bugs
        self.random = random.Random(seed)
        self.loads: deque[tuple[str, int, api.Load]] = deque()
        self.watch_committed = True
        # What the properties need to remember.
        self.leaders: dict[int, str] = {}
        self.entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.committed: list[api.Entry] = []
        self.votes: dict[tuple[str, int], str] = {}
        self.proposals: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {}
        self.acked: dict[bytes, int] = {}
        self.acked_index = 0
        self.readings: dict[int, Reading] = {}
        self.reads_asked = 0
        self.reads_done = 0
        self.events = 0
        for name in names:
            self.start(name)

    # -- lives -------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        member = self.members[name]
        assert member.core is None
        member.life += 1
        snapshot = member.disk.snapshot
        member.applied = [] if snapshot is None else decode(snapshot)
        member.commit = member.disk.base
        member.tail, member.tail_base = list(member.disk.log), member.disk.base
        member.core = RaftCore(
            name,
            tuple(self.members),
            self.settings,
            Recovered(member.disk, member.disk.hard, member.disk.base),
            random=self.random.random,
            now_ms=member.clock_ms,
            bugs=self.bugs,
        )

    def crash(self, name: str, kept_writes: int = 0) -> None:
        """Of the writes under way the first few were done."""
        member = self.members[name]
        for _ in range(min(kept_writes, len(member.writes))):
            member.disk.write(member.writes.popleft())
        member.writes.clear()
        member.core = None

    def wipe(self, name: str) -> None:
        self.crash(name)
        self.members[name].disk = ModelDisk()

    # -- events ------------------------------------------------------------------------------------

    def step(self, name: str, event: api.Event) -> list[api.Action]:
        member = self.members[name]
        assert member.core is not None
        self.events += 1
        actions = member.core.step(event)
        for action in actions:
            self._carry_out(member, action)
        return actions

    def tick(self, name: str, clock_ms: int) -> None:
        self.members[name].clock_ms = clock_ms
        self._is_quiet_until_due(name, clock_ms)
        self.step(name, api.Tick(clock_ms))

    def _is_quiet_until_due(self, name: str, clock_ms: int) -> None:
        """Before ``next_tick_ms`` even a tick that looks at everything finds nothing to do; a
        retry is due at once, and only put off."""
        core = self.members[name].core
        assert core is not None
        if clock_ms < core.next_tick_ms - RETRY_MS:
            core._due_ms = 0
            assert core.step(api.Tick(clock_ms)) == [], f"{name} was due at {clock_ms}"

    def deliver(self, sender: str, to: str, message: api.Message) -> None:
        self.step(to, api.MessageReceived(sender, message))

    def persist(self, name: str, count: int | None = None) -> None:
        """Make the oldest writes durable, all if it is not said how many."""
        member = self.members[name]
        mark = 0
        for _ in range(len(member.writes) if count is None else min(count, len(member.writes))):
            action = member.writes.popleft()
            member.disk.write(action)
            mark = action.mark  # type: ignore[union-attr]
        if mark:
            self.step(name, api.Persisted(mark))

    def propose(self, name: str, data: bytes) -> bool:
        member = self.members[name]
        actions = self.step(name, api.Propose(data))
        for action in actions:
            if isinstance(action, api.Append):
                entry = action.entries[-1]
                assert entry.data == data
                pending = self.proposals.setdefault((name, member.life), [])
                pending.append((entry.index, entry.term, data))
                self._acknowledge(member)
                return True
        assert any(isinstance(action, api.Refused) for action in actions)
        return False

    def read(self, name: str) -> int:
        self.reads_asked += 1
        number = self.reads_asked
        member = self.members[name]
        self.readings[number] = Reading(number, name, member.life, self.acked_index)
        self.step(name, api.ReadRequested(number))
        return number

    def take_snapshot(self, name: str) -> None:
        member = self.members[name]
        if member.commit > member.disk.base:
            self.step(name, api.SnapshotTaken(member.commit))

    # -- actions -----------------------------------------------------------------------------------

    def _carry_out(self, member: Member, action: api.Action) -> None:
        match action:
            case api.Persist():
                member.writes.append(action)
            case api.Append(entries, _):
                member.writes.append(action)
                self._check_appended(member, entries)
            case api.Truncate(from_index, _):
                member.writes.append(action)
                self._check_truncated(member, from_index)
            case api.Install(snapshot, _):
                member.writes.append(action)
                member.applied = decode(snapshot)
                member.commit = snapshot.index
                member.tail, member.tail_base = [], snapshot.index
            case api.Compact(upto_index):
                self._compact(member, upto_index)
            case api.Send(to, message):
                self._check_sent(member, message)
                self.post(member.name, to, message)
            case api.SendSnapshot(to, request):
                self._send_snapshot(member, to, request)
            case api.Load():
                self.loads.append((member.name, member.life, action))
            case api.Commit(index):
                self._check_committed(member, index)
            case api.BecomeLeader(term, _):
                self._check_leader(member, term)
            case api.ReadReady(number, index):
                self.readings[number].index = index
                self._finish_reads(member)
            case api.ReadFailed(number, _):
                del self.readings[number]

    def _compact(self, member: Member, upto_index: int) -> None:
        disk = member.disk
        assert upto_index <= min(member.commit, disk.last_index)
        term = disk.term_at(upto_index)
        state = msgspec.json.encode(member.applied[:upto_index])
        disk.log = disk.log[upto_index - disk.base :]
        disk.snapshot = api.Snapshot(upto_index, term, state)

    def _send_snapshot(self, member: Member, to: str, request: api.PushRequest) -> None:
        snapshot = member.disk.snapshot
        core = member.core
        if snapshot is None or core is None or core.role != "leader" or core.term != request.term:
            return
        full = msgspec.structs.replace(
            request, snapshot=snapshot, prev_index=snapshot.index, prev_term=snapshot.term
        )
        self.post(member.name, to, full)

    # -- properties --------------------------------------------------------------------------------

    def _check_appended(self, member: Member, entries: Sequence[api.Entry]) -> None:
        """Log matching: an index and a term are of one entry, and of one history before it."""
        for entry in entries:
            end = member.tail_base + len(member.tail)
            if entry.index != end + 1:
                raise Violation("gapless log", f"{member.name}: {entry.index} after {end}")
            before = self._term_before(member)
            known = self.entries.setdefault((entry.index, entry.term), (entry.data, before))
            if known != (entry.data, before):
                raise Violation("log matching", f"{member.name}: {entry}, known as {known}")
            member.tail.append(entry)

    def _term_before(self, member: Member) -> int:
        if member.tail:
            return member.tail[-1].term
        return self.committed[member.tail_base - 1].term if member.tail_base else 0

    def _check_truncated(self, member: Member, from_index: int) -> None:
        del member.tail[max(0, from_index - member.tail_base - 1) :]
        if from_index <= member.commit:
            if self.watch_committed:
                raise Violation(
                    "committed prefix", f"{member.name} removes {from_index} of {member.commit}"
                )
            member.commit = from_index - 1
            del member.applied[from_index - 1 :]

    def _check_sent(self, member: Member, message: api.Message) -> None:
        """What was said was durable before."""
        disk = member.disk
        match message:
            case api.VoteResponse(result=api.VoteResult.ACCEPT, pre=False, term=term):
                if disk.hard.term < term and "KB-DL-21" not in self.bugs:
                    raise Violation("durable votes", f"{member.name} votes in {term}: {disk.hard}")
            case api.VoteRequest(pre=False, term=term, candidate=candidate):
                if disk.hard.term < term:
                    raise Violation("durable votes", f"{member.name} stands in {term}")
                self._check_vote(member, term, candidate)
            case api.PushResponse(code=RaftCode.SUCCESS, match_index=index):
                if disk.last_index < index and not member.writes:
                    raise Violation("durable acks", f"{member.name} has {disk.last_index}: {index}")
                if disk.last_index < index:
                    raise Violation("durable acks", f"{member.name}: {index} is in writing")

    def note_vote(self, voter: str, to: str, message: api.Message) -> None:
        """A vote was delivered, or at least sent."""
        is_vote = isinstance(message, api.VoteResponse) and not message.pre
        if is_vote and message.result == api.VoteResult.ACCEPT:  # type: ignore[union-attr]
            self._check_vote(self.members[voter], message.term, to)

    def _check_vote(self, member: Member, term: int, candidate: str) -> None:
        known = self.votes.setdefault((member.name, term), candidate)
        if known != candidate:
            raise Violation("one vote a term", f"{member.name} in {term}: {known}, {candidate}")

    def _check_leader(self, member: Member, term: int) -> None:
        known = self.leaders.setdefault(term, member.name)
        if known != member.name:
            raise Violation("election safety", f"{known} and {member.name} lead {term}")
        missing = self.committed[member.tail_base :]
        if self.watch_committed and member.tail[: len(missing)] != missing:
            raise Violation("leader completeness", f"{member.name} leads {term}")

    def _check_committed(self, member: Member, index: int) -> None:
        if index > member.tail_base + len(member.tail):
            if not self.watch_committed:
                member.commit = index
                return
            raise Violation("commit within log", f"{member.name} commits {index}")
        for at in range(member.commit + 1, index + 1):
            entry = member.tail[at - member.tail_base - 1]
            if at > len(self.committed):
                self.committed.append(entry)
            elif self.committed[at - 1] != entry and self.watch_committed:
                raise Violation(
                    "state machine safety", f"{member.name}: {entry}, was {self.committed[at - 1]}"
                )
            member.applied.append(entry)
        member.commit = index
        self._acknowledge(member)
        self._finish_reads(member)

    def _acknowledge(self, member: Member) -> None:
        """What was proposed to this life of the member and is applied there is acknowledged."""
        pending = self.proposals.get((member.name, member.life), [])
        while pending and pending[0][0] <= member.commit:
            index, term, data = pending.pop(0)
            if member.applied[index - 1].term == term:
                self.acked[data] = index
                self.acked_index = max(self.acked_index, index)

    def _finish_reads(self, member: Member) -> None:
        for reading in list(self.readings.values()):
            if (reading.member, reading.life) != (member.name, member.life):
                continue
            if reading.index is None or reading.index > member.commit:
                continue
            del self.readings[reading.id]
            self.reads_done += 1
            if member.commit < reading.must_see:
                raise Violation(
                    "linearizable reads",
                    f"{member.name} shows {member.commit}, {reading.must_see} was acked",
                )

    def leader(self) -> str:
        """Of the highest term; "" if no member leads."""
        leaders = [
            (member.core.term, name)
            for name, member in self.members.items()
            if member.core is not None and member.core.role == "leader"
        ]
        return max(leaders)[1] if leaders else ""


def decode(snapshot: api.Snapshot) -> list[api.Entry]:
    return msgspec.json.decode(snapshot.data, type=list[api.Entry])
