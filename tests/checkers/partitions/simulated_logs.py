"""Histories of partitions that are right, drawn from a model of logs with transactions.

Clients send to and poll from keys at the same time. A transaction's messages stand in the log at
once and can be polled when it has committed, never before, and nothing behind an open transaction
can; an aborted one and the marks of transactions leave gaps in the offsets. Clients crash and come
back as other processes, are assigned keys or subscribe and are rebalanced. In the end every key is
polled from its beginning.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

Pairs = list[tuple[int | None, int]]


@dataclass(slots=True)
class Send:
    key: int
    value: int
    offset: int | None = None

    def asked(self) -> str:
        return f"[:send {self.key} {self.value}]"

    def answered(self) -> str:
        return f"[:send {self.key} [{_nil(self.offset)} {self.value}]]"


@dataclass(slots=True)
class Poll:
    by_key: dict[int, Pairs] = field(default_factory=dict)

    def asked(self) -> str:
        return "[:poll]"

    def answered(self) -> str:
        keys = (
            f"{key} [{' '.join(f'[{_nil(offset)} {value}]' for offset, value in pairs)}]"
            for key, pairs in self.by_key.items()
        )
        return f"[:poll {{{' '.join(keys)}}}]"


def _nil(offset: int | None) -> str:
    return "nil" if offset is None else str(offset)


@dataclass(slots=True)
class Operation:
    """``called`` and ``ended`` order the entries; one that never ended has no ``ended``."""

    process: int
    f: str
    mops: list[Send | Poll]
    called: float
    ended: float | None = None
    type: str = "info"
    keys: list[int] = field(default_factory=list)  # of assign and subscribe
    rewinds: bool = False
    moved: list[int] = field(default_factory=list)  # by a rebalance while it went on
    silent: bool = False  # its completion repeats the invocation

    def entries(self) -> Iterator[tuple[float, str]]:
        begin = f":process {self.process} :f :{self.f}"
        if self.f in ("assign", "subscribe"):
            asked = answered = f"[{' '.join(map(str, self.keys))}]"
        else:
            asked = f"[{' '.join(mop.asked() for mop in self.mops)}]"
            answered = f"[{' '.join(mop.answered() for mop in self.mops)}]"
        asked = "nil" if self.f == "crash" else asked
        yield self.called, f"{{:type :invoke {begin} :value {asked}"
        if self.ended is None:
            return
        extra = " :seek-to-beginning? true" if self.rewinds else ""
        if self.moved:
            extra += f" :rebalance-log [{{:keys [{' '.join(map(str, self.moved))}]}}]"
        said = asked if self.silent or self.f == "crash" else answered
        yield self.ended, f"{{:type :{self.type} {begin} :value {said}{extra}"

    def sends(self) -> list[Send]:
        return [mop for mop in self.mops if isinstance(mop, Send)]

    def polls(self) -> list[Poll]:
        return [mop for mop in self.mops if isinstance(mop, Poll)]

    def polled(self, key: int) -> Pairs:
        return [pair for poll in self.polls() for pair in poll.by_key.get(key, [])]


def text_of(operations: list[Operation]) -> bytes:
    entries = sorted(entry for operation in operations for entry in operation.entries())
    return "".join(
        f"{text} :index {at} :time {at * 1000}}}\n" for at, (_, text) in enumerate(entries)
    ).encode()


@dataclass(slots=True)
class Setting:
    clients: int = 4
    keys: int = 3
    operations: int = 60
    subscribes: bool = False
    crash_rate: float = 0.05
    fail_rate: float = 0.1
    sends_at_once: int = 3
    polled_at_once: int = 4


@dataclass(slots=True)
class _Entry:
    """A place in a log: a message of a transaction, or the mark of one (value None)."""

    value: int | None
    state: str  # open, committed, aborted


@dataclass(slots=True)
class _Client:
    process: int
    assigned: set[int] = field(default_factory=set)
    place: dict[int, int] = field(default_factory=dict)  # by key: the next offset
    committed: dict[int, int] = field(default_factory=dict)
    running: Iterator[None] | None = None


class Simulation:
    def __init__(self, seed: int, setting: Setting) -> None:
        self.rng = random.Random(seed)
        self.setting = setting
        self.logs: dict[int, list[_Entry]] = {key: [] for key in range(setting.keys)}
        self.group: dict[int, int] = {}  # by key: the offset that subscribers committed
        self.operations: list[Operation] = []
        self.clock = 0
        self.values = 0
        self.processes = setting.clients
        self.clients = [_Client(process) for process in range(setting.clients)]

    def run(self) -> list[Operation]:
        begun = 0
        while begun < self.setting.operations or any(each.running for each in self.clients):
            client = self.rng.choice(self.clients)
            if client.running is None:
                if begun < self.setting.operations:
                    begun += 1
                    client.running = self._operation(client)
                continue
            try:
                next(client.running)
            except StopIteration:
                client.running = None
        self._read_all()
        return self.operations

    def _tick(self) -> float:
        self.clock += 1
        return self.clock

    def _operation(self, client: _Client) -> Iterator[None]:
        drawn = self.rng.random()
        if drawn < self.setting.crash_rate:
            self._crash(client)
        elif drawn < 0.15 or not client.assigned:
            yield from self._assign(client)
        elif drawn < 0.4:
            yield from self._transact(client, "send")
        elif drawn < 0.65:
            yield from self._transact(client, "poll")
        else:
            yield from self._transact(client, "txn")

    def _crash(self, client: _Client) -> None:
        crashed = Operation(client.process, "crash", [], self._tick())
        crashed.ended = self._tick()
        self.operations.append(crashed)
        self._replace(client)

    def _replace(self, client: _Client) -> None:
        client.process, self.processes = self.processes, self.processes + 1
        client.assigned, client.place, client.committed = set(), {}, {}

    def _assign(self, client: _Client) -> Iterator[None]:
        f = "subscribe" if self.setting.subscribes else "assign"
        keys = self.rng.sample(range(self.setting.keys), self.rng.randint(1, self.setting.keys))
        op = Operation(client.process, f, [], self._tick(), keys=keys, type="ok")
        op.rewinds = f == "assign" and self.rng.random() < 0.2
        self.operations.append(op)
        yield
        client.assigned = set(keys)
        for key in list(client.place):
            if key not in client.assigned or op.rewinds:
                del client.place[key]
        client.committed = dict(client.place)
        op.ended = self._tick()

    # --- transactions -------------------------------------------------------------------------

    def _transact(self, client: _Client, f: str) -> Iterator[None]:
        op = Operation(client.process, f, self._mops(f), self._tick())
        self.operations.append(op)
        yield
        entries: list[_Entry] = []
        for mop in op.mops:
            if isinstance(mop, Poll):
                self._rebalance(client, op)
                self._poll(client, mop)
            else:
                entry = _Entry(mop.value, "open")
                mop.offset = len(self.logs[mop.key])
                self.logs[mop.key].append(entry)
                entries.append(entry)
            yield
        drawn = self.rng.random()
        aborts = drawn < self.setting.fail_rate
        crashes = self.setting.fail_rate <= drawn < 2 * self.setting.fail_rate
        commits = not aborts and not (crashes and self.rng.random() < 0.5)
        for entry in entries:
            entry.state = "committed" if commits else "aborted"
        for key in {mop.key for mop in op.sends()}:
            if self.rng.random() < 0.5:
                self.logs[key].append(_Entry(None, "committed"))
        if commits:
            client.committed = dict(client.place)
            self.group |= client.place if self.setting.subscribes else {}
        yield
        self._end(client, op, "fail" if aborts else "info" if crashes else "ok")

    def _mops(self, f: str) -> list[Send | Poll]:
        mops: list[Send | Poll] = []
        for _ in range(self.rng.randint(1, self.setting.sends_at_once)):
            if f == "poll" or (f == "txn" and self.rng.random() < 0.5):
                mops.append(Poll())
            else:
                self.values += 1
                mops.append(Send(self.rng.randrange(self.setting.keys), self.values))
        return mops

    def _end(self, client: _Client, op: Operation, type_: str) -> None:
        op.type = type_
        if type_ == "info":
            op.silent = self.rng.random() < 0.5
            if op.silent or self.rng.random() < 0.3:
                for mop in op.mops:
                    if isinstance(mop, Poll):
                        mop.by_key = {}
                    else:
                        mop.offset = None
            if self.rng.random() < 0.7:
                op.ended = self._tick()
            else:
                self._forget(op)
            self._replace(client)
            return
        if type_ == "fail":
            client.place = dict(client.committed)
            if self.rng.random() < 0.5:
                for send in op.sends():
                    send.offset = None
        op.ended = self._tick()

    @staticmethod
    def _forget(op: Operation) -> None:
        """It never ended: nothing is known of what it returned."""
        for mop in op.mops:
            if isinstance(mop, Poll):
                mop.by_key = {}
            else:
                mop.offset = None

    def _rebalance(self, client: _Client, op: Operation) -> None:
        """Now and then a key is given to a subscriber anew: it goes on where the group was."""
        if not self.setting.subscribes or self.rng.random() > 0.2:
            return
        moved = self.rng.sample(sorted(client.assigned), 1)
        op.moved += moved
        for key in moved:
            client.place[key] = self.group.get(key, 0)

    def _poll(self, client: _Client, poll: Poll) -> None:
        left = self.setting.polled_at_once
        for key in sorted(client.assigned):
            place = client.place.get(key, 0)
            log = self.logs[key]
            pairs: Pairs = []
            while place < len(log) and log[place].state != "open" and left:
                entry = log[place]
                if entry.state == "committed" and entry.value is not None:
                    pairs.append((place, entry.value))
                    left -= 1
                place += 1
            client.place[key] = place
            if pairs:
                poll.by_key[key] = pairs

    def _read_all(self) -> None:
        """Another process polls each key from its beginning to its end."""
        client = _Client(self.processes, set(self.logs))
        keys = sorted(self.logs)
        op = Operation(client.process, "assign", [], self._tick(), self._tick(), "ok", keys)
        op.rewinds = True
        self.operations.append(op)
        while any(client.place.get(key, 0) < len(log) for key, log in self.logs.items()):
            op = Operation(client.process, "poll", [Poll()], self._tick(), type="ok")
            self._poll(client, op.polls()[0])
            op.ended = self._tick()
            self.operations.append(op)


def right_history(seed: int, setting: Setting | None = None) -> list[Operation]:
    return Simulation(seed, setting or Setting()).run()
