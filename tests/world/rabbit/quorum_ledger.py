"""Ledger: what was written to replicated tables, by whom it was answered, and what must hold of it.

Every write carries a number of its own and notes which versions it was written over, so a row that
is there at the end has a line of ancestors: an answered write of that row that is not in the line
was lost or undone. What is broken is noted as it happens, by the name of its property.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shalott.broker.rabbit.metadata.membership import is_majority
from shalott.broker.rabbit.metadata.messages import Member
from shalott.broker.rabbit.metadata.records import GroupRow, PolicyRow, Record
from shalott.broker.rabbit.metadata.tables import StoredRow

if TYPE_CHECKING:
    from tests.world.rabbit.quorum import Life

Key = tuple[str, str]
KEPT, FLEETING = "policy", "gm_group"  # a table on disk, and one in memory only
NOWHERE = 1 << 62  # the version of an attempt that no node ever had
KEYS: tuple[Key, ...] = ((KEPT, "a"), (KEPT, "b"), (FLEETING, "c"))


def record_of(key: Key, number: int) -> Record:
    table, name = key
    if table == KEPT:
        return PolicyRow(vhost="/", name=name, pattern="", definition={}, priority=number)
    return GroupRow(name=name, version=number, members=())


def number_of(record: Record | None) -> int:
    assert isinstance(record, PolicyRow | GroupRow)
    return record.priority if isinstance(record, PolicyRow) else record.version


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write that was tried: ``over`` are the versions of its rows that it had read."""

    number: int
    over: Mapping[Key, int]


def newest_group(lives: Iterable[Life]) -> dict[str, Member] | None:
    """The members as the newest leader has them; None if none leads."""
    leading = [(life.term, life) for life in lives if life.is_leading]
    return max(leading, key=lambda entry: entry[0])[1].group if leading else None


@dataclass(slots=True)
class Ledger:
    """``broken``: (property, what was seen), in order of time."""

    nodes: tuple[str, ...]
    patience_ns: int  # how long a member that was dropped may not know it
    broken: list[tuple[str, str]] = field(default_factory=list)
    answered: list[Attempt] = field(default_factory=list)
    outages: int = 0  # beginnings and ends of times in which no majority ran
    _attempts: dict[int, Attempt] = field(default_factory=dict)
    _by_version: dict[int, int] = field(default_factory=dict)
    _version_of: dict[int, int] = field(default_factory=dict)
    _outages_at: dict[int, int] = field(default_factory=dict)  # version -> outages before it
    _settled: dict[tuple[Key, int], None] = field(default_factory=dict)
    _heights: dict[Member, int] = field(default_factory=dict)
    _dropped_at: dict[Member, int] = field(default_factory=dict)
    _had_majority: bool = True

    def broke(self, what: str, text: str) -> None:
        self.broken.append((what, text))

    # -- writes and reads --------------------------------------------------------------------------

    def attempt(self, over: Mapping[Key, int]) -> Attempt:
        attempt = Attempt(len(self._attempts) + 1, over)
        self._attempts[attempt.number] = attempt
        return attempt

    def saw(self, rows: Iterable[StoredRow]) -> None:
        """Some node has these rows."""
        for row in rows:
            number = number_of(row.record)
            other = self._by_version.setdefault(row.version, number)
            self._version_of.setdefault(number, row.version)
            self._outages_at.setdefault(row.version, self.outages)
            if other != number:
                self.broke("one-write-a-version", f"{row.version} is of {other} and of {number}")

    def newest(self, key: Key) -> int:
        """The version of ``key`` below which no confirmed read may be from now on."""
        versions = (self._version_of.get(a.number, 0) for a in self.answered if key in a.over)
        return max((v for v in versions if not self._may_be_gone(key, v)), default=0)

    def read(self, key: Key, version: int, newest: int) -> None:
        """A confirmed read, which began when ``newest`` was known."""
        if version < newest and not self._may_be_gone(key, newest):
            self.broke("reads-never-go-back", f"{key} at {version}, and {newest} was answered")

    def _may_be_gone(self, key: Key, version: int) -> bool:
        """What is in memory only lives as long as a majority runs."""
        return key[0] == FLEETING and self._outages_at.get(version, 0) < self.outages

    def is_everywhere(self, attempt: Attempt, lives: Iterable[Life]) -> None:
        """An attempt was answered: who is a member has it."""
        version = self._version_of.get(attempt.number, NOWHERE)
        lives = [life for life in lives if life.server.phase == "running" and life.is_awake]
        group = newest_group(lives) or {}
        for life in lives:
            behind = life.server.tables.version
            if group.get(life.node) == life.server.me and behind < version:
                what = f"{life.node} is at {behind}, and {version} was answered"
                self.broke("what-was-answered-is-everywhere", what)

    # -- watching ----------------------------------------------------------------------------------

    def watch(self, lives: Iterable[Life], now_ns: int) -> None:
        """Call it whenever something may have changed."""
        lives = list(lives)
        running = [life for life in lives if life.server.phase == "running"]
        has_majority = is_majority(len(running), len(self.nodes))
        self.outages += self._had_majority != has_majority
        self._had_majority = has_majority
        for life in running:
            version, me = life.server.tables.version, life.server.me
            if version < self._heights.get(me, 0):
                self.broke("versions-never-go-back", f"{me}: {version} < {self._heights[me]}")
            self._heights[me] = version
        self._watch_dropped([life for life in running if life.is_awake], now_ns)

    def _watch_dropped(self, running: Sequence[Life], now_ns: int) -> None:
        """Who is no member of the newest leader's group must find out, and confirm nothing."""
        members = newest_group(running)
        dropped: dict[Member, int] = {}
        for life in running:
            me = life.server.me
            if members is None or members.get(life.node) == me or not life.handler.may_confirm():
                continue
            dropped[me] = self._dropped_at.get(me, now_ns)
            if now_ns - dropped[me] > self.patience_ns:
                self.broke("the-dropped-confirm-nothing", f"{me} is not in {list(members)}")
        self._dropped_at = dropped

    def note_settled(self, lives: Iterable[Life]) -> None:
        """What nodes take for settled now must be in the line of ancestors at the end."""
        for life in lives:
            if life.server.phase != "running" or not life.is_awake:
                continue
            for key in KEYS:
                version = life.metadata.version(*key)
                if version and life.metadata.is_settled(*key):
                    self._settled[key, version] = None

    # -- the end -----------------------------------------------------------------------------------

    def judge(self, version_of: Callable[[Key], int]) -> None:
        """``version_of``: each row's version when all nodes agree at last."""
        for key in KEYS:
            line = self._line(key, version_of(key))
            for attempt in self.answered:
                if key in attempt.over:
                    version = self._version_of.get(attempt.number, NOWHERE)
                    self._is_in(line, key, version, "no-answered-write-is-lost")
            for settled, version in self._settled:
                if settled == key:
                    self._is_in(line, key, version, "no-settled-row-is-undone")

    def _is_in(self, line: Mapping[int, None], key: Key, version: int, what: str) -> None:
        if version not in line and not self._may_be_gone(key, version):
            self.broke(what, f"{key} at {version}, and there are {', '.join(map(str, line))}")

    def _line(self, key: Key, version: int) -> dict[int, None]:
        """The versions of ``key`` that led to ``version``, which is one of them."""
        line: dict[int, None] = {}
        while version and version not in line:
            line[version] = None
            number = self._by_version.get(version)
            version = 0 if number is None else self._attempts[number].over.get(key, 0)
        return line
