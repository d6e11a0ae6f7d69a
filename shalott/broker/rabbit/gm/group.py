"""The GM group row: what may be changed in it, and the ring (the view) that it describes.

Theory: rabbit/gm.erl. The row lists the members in ring order, the dead among them until their
messages are settled. The alive members in that order are the ring. A dead member is an *alias* of
the next alive member downstream (to its right, cyclically): that one stands in as the publisher of
what the dead one had in flight. Everything here is pure: the shell runs ``apply_change`` inside a
metadata transaction, so no change is ever made to a stale row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shalott.broker.rabbit.metadata.records import GroupMember, GroupRow, MemberId


class LostMembership(Exception):
    """This member was recorded as dead, or the group is gone: it must stop and join anew."""


class GroupGone(LostMembership):
    """There is no group any more."""


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """First member, or the first after all others died."""

    name: str
    member: MemberId


@dataclass(frozen=True, slots=True)
class AddMember:
    """``left`` takes ``newcomer`` in, as its right neighbour."""

    left: MemberId
    newcomer: MemberId


@dataclass(frozen=True, slots=True)
class RecordDead:
    """``by`` is None while joining: who isn't a member yet can't have lost its membership. (And in
    every change under KB-RMQ-06: who makes it is not checked.)
    """

    member: MemberId
    by: MemberId | None


@dataclass(frozen=True, slots=True)
class EraseMembers:
    """Dead members of whom nothing is in flight any more."""

    members: tuple[MemberId, ...]
    by: MemberId | None


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """A fresh read, for when a neighbour's message proves that the local row is old."""

    by: MemberId | None


GroupChange = CreateGroup | AddMember | RecordDead | EraseMembers | ReadGroup


def check_membership(member: MemberId, row: GroupRow | None) -> GroupRow:
    """The row, if ``member`` is alive in it. Raises LostMembership."""
    row = _existing(row)
    if GroupMember(member) not in row.members:
        raise LostMembership(str(member.pid))
    return row


def _existing(row: GroupRow | None) -> GroupRow:
    if row is None:
        raise GroupGone("the group is gone")
    return row


def apply_change(change: GroupChange, row: GroupRow | None, floor_version: int = 0) -> GroupRow:
    """The row after ``change``; ``row`` itself if nothing has to be written. Raises LostMembership.

    ``floor_version`` is below every version this group ever had: a group that was forgotten and is
    made again must not repeat them.
    """
    match change:
        case CreateGroup(name, member):
            if row is not None and any(other.alive for other in row.members):
                return row
            version = max(member.version, floor_version, 0 if row is None else row.version + 1)
            return GroupRow(name=name, version=version, members=(GroupMember(member),))
        case AddMember(left, newcomer):
            row = check_membership(left, row)
            return row if _knows(row, newcomer) else _insert_right(row, left, newcomer)
        case RecordDead(member, by):
            return _mark_dead(_checked(by, row), member)
        case EraseMembers(members, by):
            return _erase(_checked(by, row), members)
        case ReadGroup(by):
            return _checked(by, row)


def _checked(by: MemberId | None, row: GroupRow | None) -> GroupRow:
    return _existing(row) if by is None else check_membership(by, row)


def _knows(row: GroupRow, member: MemberId) -> bool:
    return any(other.id == member for other in row.members)


def _with_members(row: GroupRow, members: Iterable[GroupMember]) -> GroupRow:
    return GroupRow(name=row.name, version=row.version + 1, members=tuple(members))


def _insert_right(row: GroupRow, left: MemberId, newcomer: MemberId) -> GroupRow:
    at = row.members.index(GroupMember(left)) + 1
    return _with_members(row, (*row.members[:at], GroupMember(newcomer), *row.members[at:]))


def _mark_dead(row: GroupRow, member: MemberId) -> GroupRow:
    if GroupMember(member) not in row.members:
        return row  # another member recorded it already
    return _with_members(
        row, (GroupMember(m.id, False) if m.id == member else m for m in row.members)
    )


def _erase(row: GroupRow, members: tuple[MemberId, ...]) -> GroupRow:
    kept = [m for m in row.members if m.alive or m.id not in members]
    return row if len(kept) == len(row.members) else _with_members(row, kept)


@dataclass(frozen=True, slots=True)
class ViewMember:
    """A place in the ring, and the dead upstream for whom it stands in."""

    id: MemberId
    left: MemberId
    right: MemberId
    aliases: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The ring at one version of the row."""

    version: int
    members: dict[MemberId, ViewMember]

    def known(self) -> list[MemberId]:
        """Every member, the dead ones that are still a member's alias included."""
        return [m for place in self.members.values() for m in (*place.aliases, place.id)]

    def alive(self) -> list[MemberId]:
        return list(self.members)


def group_to_view(row: GroupRow) -> View:
    """The ring of ``row``; at least one member is alive."""
    alive = [member.id for member in row.members if member.alive]
    assert alive, "a group of the dead has no ring"
    aliases = _aliases(row.members)
    places = {
        member: ViewMember(
            id=member,
            left=alive[index - 1],
            right=alive[(index + 1) % len(alive)],
            aliases=tuple(aliases[member]),
        )
        for index, member in enumerate(alive)
    }
    return View(row.version, places)


def _aliases(members: tuple[GroupMember, ...]) -> dict[MemberId, list[MemberId]]:
    last_alive = max(index for index, member in enumerate(members) if member.alive)
    rotated = members[last_alive + 1 :] + members[: last_alive + 1]
    owners: dict[MemberId, list[MemberId]] = {}
    dead: list[MemberId] = []
    for member in rotated:
        if member.alive:
            owners[member.id], dead = dead, []
        else:
            dead.append(member.id)
    assert not dead
    return owners
