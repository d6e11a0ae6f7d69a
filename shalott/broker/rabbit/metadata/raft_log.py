"""What stands in the Raft log of the tables, and what it makes of them: a pure state machine.

The log orders three commands: write rows if they are still at the versions that the writer saw,
add a member, drop a member. A *member* is one run of the broker on a node; only members write, and
only while they are a majority of the listed nodes: a row that is in memory only lives as long as
members do, so it must be in many memories. A command's index in the log is the version of the rows
that it writes, so versions only grow, and a row's version orders it against every other change, on
every node alike.

The first member after there was none begins a new life of the cluster: rows that are in memory only
(broker.rabbit.metadata.records.TABLES) speak of processes that are all gone, and are forgotten, as
after a restart of every node.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from shalott.broker.rabbit.metadata.membership import is_majority
from shalott.broker.rabbit.metadata.messages import Member
from shalott.broker.rabbit.metadata.tables import Change, StoredRow, Tables


class WriteRows(msgspec.Struct, frozen=True, array_like=True, tag="write"):
    """``member`` changes rows, or only asks whether they are as it saw them."""

    member: Member
    changes: tuple[Change, ...]


class AddMember(msgspec.Struct, frozen=True, array_like=True, tag="add"):
    """In place of an earlier run of the same node's broker."""

    member: Member


class DropMember(msgspec.Struct, frozen=True, array_like=True, tag="drop"):
    member: Member


Command = WriteRows | AddMember | DropMember


@dataclass(frozen=True, slots=True)
class Written:
    """Every row was at the version that the writer saw. ``rows`` are those that it changed."""

    rows: tuple[StoredRow, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Some row had moved on."""


@dataclass(frozen=True, slots=True)
class NoMember:
    """The writer is not, or not any more, a member."""


@dataclass(frozen=True, slots=True)
class NoMajority:
    """Fewer than a majority of the listed nodes are members."""


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """``rows`` were forgotten."""

    rows: tuple[StoredRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The command was carried out before, or is overtaken by a later run of the same broker."""


Outcome = Written | Refused | NoMember | NoMajority | MembersChanged | Unchanged


class _Image(msgspec.Struct, frozen=True, array_like=True):
    version: int
    members: tuple[Member, ...]
    rows: tuple[StoredRow, ...]


_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_images: msgspec.msgpack.Decoder[_Image] = msgspec.msgpack.Decoder(_Image)


def encode(command: Command) -> bytes:
    return _encoder.encode(command)


def decode(data: bytes) -> Command:
    """Raises msgspec.MsgspecError on what is no command."""
    return _commands.decode(data)


class ReplicatedTables:
    """The tables and the members after every command up to ``tables.version``. ``listed``: how many
    nodes there are. ``is_blind``: write rows without looking at their versions (known bug
    OUR-04)."""

    def __init__(self, listed: int, *, is_blind: bool = False) -> None:
        self.tables = Tables()
        self.members: dict[str, Member] = {}  # by node, in order of joining
        self._listed = listed
        self._is_blind = is_blind

    @property
    def has_majority(self) -> bool:
        """Whether the members may write."""
        return is_majority(len(self.members), self._listed)

    def apply(self, index: int, command: Command) -> Outcome:
        """The commands of the log in their order, each once."""
        assert index > self.tables.version
        outcome = self._apply(index, command)
        self.tables.version = index
        return outcome

    def _apply(self, index: int, command: Command) -> Outcome:
        match command:
            case WriteRows(member, changes):
                if self.members.get(member.node) != member:
                    return NoMember()
                if not self.has_majority:
                    return NoMajority()
                if not self._is_blind and self.tables.conflicts(changes):
                    return Refused()
                return Written(tuple(self.tables.apply(index, changes)))
            case AddMember(member):
                return self._add(member)
            case DropMember(member):
                if self.members.get(member.node) != member:
                    return Unchanged()
                del self.members[member.node]
                return MembersChanged()

    def _add(self, member: Member) -> Outcome:
        present = self.members.get(member.node)
        if present is not None and not member.is_newer_than(present):
            return Unchanged()
        forgotten = () if self.members else self._forget_what_is_in_memory()
        self.members.pop(member.node, None)
        self.members[member.node] = member
        return MembersChanged(forgotten)

    def _forget_what_is_in_memory(self) -> tuple[StoredRow, ...]:
        before, self.tables = self.tables, Tables()
        self.tables.store(before.snapshot(durable_only=True))
        return rows_that_differ(before, self.tables)

    def image(self) -> bytes:
        """All of it, for a snapshot."""
        tables = self.tables
        members = tuple(self.members.values())
        return _encoder.encode(_Image(tables.version, members, tuple(tables.snapshot())))

    def restore(self, image: bytes) -> tuple[StoredRow, ...]:
        """Be as the image is. Returns the rows that differ from what was here."""
        found = _images.decode(image)
        before, self.tables = self.tables, Tables()
        self.tables.store(found.rows)
        self.tables.version = found.version
        self.members = {member.node: member for member in found.members}
        return rows_that_differ(before, self.tables)


def rows_that_differ(old: Tables, new: Tables) -> tuple[StoredRow, ...]:
    """Rows of ``new`` that are not so in ``old``, and those of ``old`` that ``new`` lacks."""
    changed = [
        row for row in new.snapshot() if old.row(row.table, row.key) != new.row(row.table, row.key)
    ]
    gone = [row for row in old.snapshot() if new.row(row.table, row.key) is None]
    return (*changed, *gone)
