"""Databases that keep one isolation level and no stronger one, and the histories of their clients.

Each is a small program whose correctness is plain: versions in the order of the commits, locks, or
snapshots of that order. Clients run at once, one step of one of them at a time, drawn from a random
stream: call, each micro-operation, commit, return. A client may crash at any step: its transaction
is ``info``, and goes on or is given up, now or much later. The database may abort (``fail``), and
so may the client.

    history = run(DATABASES["snapshot-isolation"], "list-append", random.Random(seed))
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tests.checkers.transactions.histories import Mop, Semantics, Transaction

Value = Hashable


class Aborted(Exception):
    """The database gives the transaction up."""


@dataclass(slots=True)
class Session:
    """A transaction that runs, as a database has it."""

    number: int
    process: int
    writes: list[Mop] = field(default_factory=list)
    snapshot: int = 0  # how many commits it sees
    read_own: set[str] = field(default_factory=set)  # keys that it read behind its own write
    sees: set[int] = field(default_factory=set)  # numbers of commits, where these are no prefix


@dataclass(slots=True)
class Commit:
    process: int
    writes: list[Mop]
    sees: frozenset[int] = frozenset()


class Database(Protocol):
    """What a client's transaction asks of it. Each may raise Aborted."""

    def begin(self, session: Session) -> None: ...
    def read(self, session: Session, key: str) -> Value: ...
    def write(self, session: Session, mop: Mop) -> None: ...
    def commit(self, session: Session) -> None: ...
    def abort(self, session: Session) -> None: ...


def apply(semantics: Semantics, value: Value, mop: Mop) -> Value:
    if semantics == "rw-register":
        return mop[2]
    assert isinstance(value, tuple)
    return (*value, mop[2])


@dataclass(slots=True)
class Log:
    """The commits, in their order, and what was in a key behind any of them."""

    semantics: Semantics
    commits: list[Commit] = field(default_factory=list)
    versions: dict[str, list[tuple[int, Value]]] = field(default_factory=dict)

    def value(self, key: str, at: int) -> Value:
        """Behind the first ``at`` commits."""
        for number, value in reversed(self.versions.get(key, [])):
            if number < at:
                return value
        return () if self.semantics == "list-append" else None

    def add(self, session: Session) -> None:
        number = len(self.commits)
        self.commits.append(Commit(session.process, session.writes, frozenset(session.sees)))
        for mop in session.writes:
            before = self.value(mop[1], number + 1)
            self.versions.setdefault(mop[1], []).append(
                (number, apply(self.semantics, before, mop))
            )

    def written_since(self, keys: set[str], at: int) -> bool:
        """Whether a commit behind the first ``at`` wrote one of the keys."""
        return any(self.versions.get(key) and self.versions[key][-1][0] >= at for key in keys)


@dataclass(slots=True)
class Snapshots:
    """Reads come from a snapshot of the log, writes are added to it at the commit.

    ``lag``: how old a snapshot may be: "none"; "own" if it must have the process's own commits;
    "any". ``first_wins``: a transaction aborts if another has written what it writes since its
    snapshot. ``serial``: or what it read; then only those that write nothing may be old.
    """

    semantics: Semantics
    rng: random.Random
    lag: Literal["none", "own", "any"] = "none"
    first_wins: bool = True
    serial: bool = False
    log: Log = field(init=False)
    reads: dict[int, set[str]] = field(default_factory=dict)  # by transaction
    newest: dict[int, int] = field(default_factory=dict)  # snapshot by process

    def __post_init__(self) -> None:
        self.log = Log(self.semantics)

    def begin(self, session: Session) -> None:
        newest = len(self.log.commits)
        oldest = 0 if self.lag == "any" else newest
        if self.lag == "own":
            own = [n for n, each in enumerate(self.log.commits) if each.process == session.process]
            oldest = max(own[-1] + 1 if own else 0, self.newest.get(session.process, 0))
        old = self.rng.random() < 0.6
        session.snapshot = self.rng.randint(max(oldest, newest - 6), newest) if old else newest
        self.newest[session.process] = session.snapshot
        self.reads[session.number] = set()

    def read(self, session: Session, key: str) -> Value:
        self.reads[session.number].add(key)
        value = self.log.value(key, session.snapshot)
        for mop in session.writes:
            if mop[1] == key:
                value = apply(self.semantics, value, mop)
                session.read_own.add(key)
        return value

    def write(self, session: Session, mop: Mop) -> None:
        session.writes.append(mop)

    def commit(self, session: Session) -> None:
        keys = {mop[1] for mop in session.writes} if self.first_wins else set()
        if self.semantics == "list-append":
            keys |= session.read_own  # it saw its own version: nothing may come before that now
        if self.serial and session.writes:
            keys |= self.reads[session.number]
        if self.log.written_since(keys, session.snapshot):
            raise Aborted
        self.log.add(session)

    def abort(self, session: Session) -> None:
        pass


@dataclass(slots=True)
class Locks:
    """Everything is in place, under locks that last until the end. A lock that is held aborts.

    ``reads``: "locked" is two-phase locking; "committed" sees what has been committed, whatever
    is there; "any" sees what is there.
    """

    semantics: Semantics
    rng: random.Random
    reads: Literal["locked", "committed", "any"] = "locked"
    there: dict[str, Value] = field(default_factory=dict)
    committed: dict[str, Value] = field(default_factory=dict)
    writer: dict[str, int] = field(default_factory=dict)
    readers: dict[str, set[int]] = field(default_factory=dict)

    def begin(self, session: Session) -> None:
        pass

    def read(self, session: Session, key: str) -> Value:
        holder = self.writer.get(key, session.number)
        nothing = () if self.semantics == "list-append" else None
        if self.reads == "locked":
            if holder != session.number:
                raise Aborted
            self.readers.setdefault(key, set()).add(session.number)
        if self.reads == "committed" and holder != session.number:
            return self.committed.get(key, nothing)
        return self.there.get(key, nothing)

    def write(self, session: Session, mop: Mop) -> None:
        key = mop[1]
        if self.writer.setdefault(key, session.number) != session.number:
            raise Aborted
        if self.readers.get(key, set()) - {session.number}:
            raise Aborted
        nothing = () if self.semantics == "list-append" else None
        self.there[key] = apply(self.semantics, self.there.get(key, nothing), mop)
        session.writes.append(mop)

    def commit(self, session: Session) -> None:
        for mop in session.writes:
            self.committed[mop[1]] = self.there[mop[1]]
        self._let_go(session)

    def abort(self, session: Session) -> None:
        for mop in session.writes:
            nothing = () if self.semantics == "list-append" else None
            self.there[mop[1]] = self.committed.get(mop[1], nothing)
        self._let_go(session)

    def _let_go(self, session: Session) -> None:
        self.writer = {key: who for key, who in self.writer.items() if who != session.number}
        for held in self.readers.values():
            held.discard(session.number)


@dataclass(slots=True)
class Visible:
    """Reads see the writes of some of the commits, the newest of these for each key.

    ``of``: "any" commits, chosen for each transaction; "site": those that have arrived at the
    process's site, in an order that keeps causes (with ``first_wins`` this is parallel SI).
    """

    semantics: Semantics
    rng: random.Random
    of: Literal["any", "site"] = "any"
    first_wins: bool = False
    sites: int = 3
    log: Log = field(init=False)
    arrived: list[set[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.log = Log(self.semantics)
        self.arrived = [set() for _ in range(self.sites)]

    def begin(self, session: Session) -> None:
        commits = range(len(self.log.commits))
        if self.of == "any":
            session.sees = {number for number in commits if self.rng.random() < 0.7}
            return
        self._deliver()
        session.sees = set(self.arrived[session.process % self.sites])
        session.snapshot = len(self.log.commits)

    def _deliver(self) -> None:
        """Some commits arrive at some sites, each after all that it saw."""
        for site in self.arrived:
            for number, commit in enumerate(self.log.commits):
                if number not in site and commit.sees <= site and self.rng.random() < 0.4:
                    site.add(number)

    def read(self, session: Session, key: str) -> Value:
        value: Value = () if self.semantics == "list-append" else None
        for number, version in self.log.versions.get(key, ()):
            if number in session.sees:
                value = version
        for mop in session.writes:
            if mop[1] == key:
                value = apply(self.semantics, value, mop)
                session.read_own.add(key)
        return value

    def write(self, session: Session, mop: Mop) -> None:
        session.writes.append(mop)

    def commit(self, session: Session) -> None:
        keys = {mop[1] for mop in session.writes} if self.first_wins else set()
        if self.semantics == "list-append":
            keys |= session.read_own
        if any(n not in session.sees for key in keys for n, _ in self.log.versions.get(key, ())):
            raise Aborted
        number = len(self.log.commits)
        self.log.add(session)
        self.arrived[session.process % self.sites].add(number)

    def abort(self, session: Session) -> None:
        pass


@dataclass(slots=True)
class Nothing:
    """Keeps nothing: each micro-operation at once, in place; what aborts stays."""

    semantics: Semantics
    rng: random.Random
    there: dict[str, Value] = field(default_factory=dict)

    def begin(self, session: Session) -> None:
        pass

    def read(self, session: Session, key: str) -> Value:
        return self.there.get(key, () if self.semantics == "list-append" else None)

    def write(self, session: Session, mop: Mop) -> None:
        self.there[mop[1]] = apply(self.semantics, self.read(session, mop[1]), mop)

    def commit(self, session: Session) -> None:
        pass

    def abort(self, session: Session) -> None:
        pass


MakeDatabase = Callable[[Semantics, random.Random], Database]

# The strongest level that each keeps, by the name of the database.
DATABASES: dict[str, tuple[MakeDatabase, str]] = {
    "locks": (Locks, "strict-serializable"),
    "optimistic": (lambda s, rng: Snapshots(s, rng, serial=True), "strict-serializable"),
    "old-reads-own": (
        lambda s, rng: Snapshots(s, rng, lag="own", serial=True),
        "strong-session-serializable",
    ),
    "old-reads": (lambda s, rng: Snapshots(s, rng, lag="any", serial=True), "serializable"),
    "snapshots": (Snapshots, "strong-snapshot-isolation"),
    "old-snapshots-own": (
        lambda s, rng: Snapshots(s, rng, lag="own"),
        "strong-session-snapshot-isolation",
    ),
    "old-snapshots": (lambda s, rng: Snapshots(s, rng, lag="any"), "snapshot-isolation"),
    "last-wins": (lambda s, rng: Snapshots(s, rng, lag="any", first_wins=False), "prefix"),
    "sites": (
        lambda s, rng: Visible(s, rng, of="site", first_wins=True),
        "parallel-snapshot-isolation",
    ),
    "sites-last-wins": (lambda s, rng: Visible(s, rng, of="site"), "causal-cerone"),
    "some-first-wins": (lambda s, rng: Visible(s, rng, first_wins=True), "update-atomic"),
    "some": (Visible, "read-atomic"),
    "read-locks-not": (
        lambda s, rng: Locks(s, rng, reads="committed"),
        "strong-read-committed",
    ),
    "dirty": (lambda s, rng: Locks(s, rng, reads="any"), "strong-read-uncommitted"),
    "nothing": (Nothing, ""),
}


@dataclass(frozen=True, slots=True)
class Clients:
    """What clients do."""

    transactions: int = 6
    processes: int = 3
    keys: int = 3
    longest: int = 3  # micro-operations
    crash: float = 0.1
    abort: float = 0.1
    writes_a_key: int = 0  # then another key takes its place; 0: never
    read_all: bool = False  # at the end, when all is over
    values: int = 0  # so many, which are written again and again; 0: no key has a value twice


@dataclass(slots=True)
class _Running:
    session: Session
    process: int
    asked: list[Mop]
    call: int
    saw: list[Mop] = field(default_factory=list)
    ghost: bool = False  # its client is gone
    state: Literal["runs", "returns", "aborted"] = "runs"


@dataclass(slots=True)
class Workload:
    """Draws transactions; values are unique for each key."""

    semantics: Semantics
    clients: Clients
    rng: random.Random
    keys: list[str] = field(init=False)
    written: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = [str(number) for number in range(self.clients.keys)]

    def draw(self) -> list[Mop]:
        return [self._mop() for _ in range(self.rng.randint(1, self.clients.longest))]

    def _mop(self) -> Mop:
        place = self.rng.randrange(len(self.keys))
        key = self.keys[place]
        if self.rng.random() < 0.5:
            return "r", key, None
        most = self.clients.writes_a_key
        if most and self.written.get(key, 0) >= most:
            key = self.keys[place] = str(1 + max(map(int, {*self.keys, *self.written})))
        self.written[key] = self.written.get(key, 0) + 1
        many = self.clients.values
        value = self.rng.randint(1, many) if many else self.written[key]
        return "append" if self.semantics == "list-append" else "w", key, value


def run(
    make: MakeDatabase, semantics: Semantics, rng: random.Random, clients: Clients = Clients()
) -> list[Transaction]:
    """One history, in the order of the calls."""
    return _Run(make(semantics, rng), Workload(semantics, clients, rng), rng, clients).history()


@dataclass(slots=True)
class _Run:
    database: Database
    workload: Workload
    rng: random.Random
    clients: Clients
    now: int = 0
    begun: int = 0
    running: dict[int, _Running] = field(default_factory=dict)  # by process
    ghosts: list[_Running] = field(default_factory=list)
    done: list[Transaction] = field(default_factory=list)
    names: list[int] = field(default_factory=list)  # the process of each client

    def history(self) -> list[Transaction]:
        self.names = list(range(self.clients.processes))
        while self.begun < self.clients.transactions or self.running:
            self._step_of_some()
        if self.clients.read_all:
            self._read_all()
        return sorted(self.done, key=lambda each: each.call)

    def _step_of_some(self) -> None:
        self.now += 1
        if self.ghosts and self.rng.random() < 0.2:
            ghost = self.rng.choice(self.ghosts)
            self._step(ghost)
            if ghost.state != "runs":
                self.ghosts.remove(ghost)
            return
        client = self.rng.randrange(len(self.names))
        process = self.names[client]
        if process not in self.running:
            if self.begun < self.clients.transactions:
                self._begin(process, self.workload.draw())
            return
        running = self.running[process]
        if self.rng.random() < self.clients.crash / (1 + len(running.asked)):
            self._crash(client, running)
        elif running.state == "runs":
            self._step(running)
        else:
            self._return(running)

    def _begin(self, process: int, asked: list[Mop]) -> None:
        session = Session(self.begun, process)
        self.begun += 1
        self.running[process] = _Running(session, process, asked, self.now)
        self.database.begin(session)

    def _step(self, running: _Running) -> None:
        session = running.session
        try:
            if len(running.saw) == len(running.asked):
                if self.rng.random() < self.clients.abort:
                    raise Aborted
                self.database.commit(session)
                running.state = "returns"
                return
            f, key, value = mop = running.asked[len(running.saw)]
            if f == "r":
                value = self.database.read(session, key)
            else:
                self.database.write(session, mop)
            running.saw.append((f, key, value))
        except Aborted:
            self.database.abort(session)
            running.state = "aborted"

    def _return(self, running: _Running) -> None:
        ok = running.state == "returns"
        mops = tuple(running.saw if ok else running.asked)
        kind: Literal["ok", "fail"] = "ok" if ok else "fail"
        self.done.append(Transaction(running.process, mops, running.call, self.now, kind))
        del self.running[running.process]

    def _crash(self, client: int, running: _Running) -> None:
        mops = tuple(running.asked)
        self.done.append(Transaction(running.process, mops, running.call, None, "info"))
        del self.running[running.process]
        self.names[client] += self.clients.processes
        if running.state == "runs":
            if self.rng.random() < 0.5:
                self.ghosts.append(running)
            else:
                self.database.abort(running.session)

    def _read_all(self) -> None:
        """One transaction a time reads every key, until one was not refused."""
        for ghost in self.ghosts:
            self.database.abort(ghost.session)
        self.ghosts.clear()
        keys = sorted({*self.workload.keys, *self.workload.written}, key=int)
        for process in itertools.cycle(self.names):
            self.now += 1
            self._begin(process, [("r", key, None) for key in keys])
            running = self.running[process]
            while running.state == "runs":
                self.now += 1
                self._step(running)
            self.now += 1
            self._return(running)
            if running.state == "returns":
                return
