"""What a GM member remembers of each publisher, and the arithmetic on it.

Theory: rabbit/gm.erl. Every member keeps, for every publisher, the messages that it has seen
published but not yet acknowledged round the ring (``pending``), the last number published and the
last acknowledged. Pubs travel once round the ring; when they are home again their publisher sends
acks round, which let everybody forget. After a change of neighbours the left one sends its whole
state (catchup), and ``split`` finds what the receiver has missed: pubs and acks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from shalott.broker.rabbit.gm.bugs import GmBugs
from shalott.broker.rabbit.metadata.records import MemberId
from shalott.broker.rabbit.processes.messages import Message

Pub = tuple[int, bytes]


class ActivityItem(msgspec.Struct, frozen=True, array_like=True):
    """News about one publisher: numbered messages, and the numbers acknowledged."""

    publisher: MemberId
    pubs: tuple[Pub, ...]
    acks: tuple[int, ...]


class MemberSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A MemberState on its way to the right neighbour."""

    id: MemberId
    pending: tuple[Pub, ...]
    last_pub: int
    last_ack: int


class RingMessage(Message, frozen=True):
    """Base of what neighbours say: who says it, to whom, and the version of the sender's view."""

    to: MemberId
    sender: MemberId
    version: int


class CheckNeighbours(RingMessage, frozen=True):
    """Look at the group again: the sender was, or has become, your neighbour."""


class Catchup(RingMessage, frozen=True):
    """The sender's whole state, to its new right neighbour."""

    states: tuple[MemberSnapshot, ...]


class Activity(RingMessage, frozen=True):
    """Pubs and acks on their way round."""

    items: tuple[ActivityItem, ...]


class MemberState:
    """One publisher, as one member sees it."""

    __slots__ = ("last_ack", "last_pub", "pending")

    def __init__(self, pending: Iterable[Pub] = (), last_pub: int = -1, last_ack: int = -1) -> None:
        self.pending = deque(pending)
        self.last_pub = last_pub
        self.last_ack = last_ack

    @property
    def is_settled(self) -> bool:
        return self.last_pub == self.last_ack

    @property
    def acked(self) -> int:
        """The last message that this member, which does not stand in for the publisher, needs no
        acknowledgement of. A newcomer begins without those whose acknowledgements were under way
        then: they may have died with another member, and no member would miss them, or the dead
        publisher.
        """
        return self.pending[0][0] - 1 if self.pending else self.last_pub

    def publish(self, pubs: Sequence[Pub]) -> None:
        """More was published. Numbers only grow: anything else means that the ring is broken."""
        if not pubs:
            return
        assert pubs[-1][0] > self.last_pub, f"pub {pubs[-1][0]} after {self.last_pub}"
        self.pending.extend(pubs)
        self.last_pub = pubs[-1][0]

    def acknowledge(self, acks: Sequence[int]) -> None:
        """Messages up to the last of ``acks`` are known to all: forget them."""
        if not acks:
            return
        self._advance_ack(acks)
        while self.pending and self.pending[0][0] <= acks[-1]:
            self.pending.popleft()

    def come_home(
        self, pubs: Sequence[Pub], acks: Sequence[int], *, strict: bool = False
    ) -> tuple[int, ...]:
        """Own (or an alias's) pubs went round: forget them; returns the numbers to acknowledge."""
        if acks:
            self._advance_ack(acks)
        common, rest = _common(list(pubs), list(self.pending), strict=strict)
        self.pending = deque(rest)
        return tuple(number for number, _ in common)

    def _advance_ack(self, acks: Sequence[int]) -> None:
        assert acks[-1] > self.last_ack, f"ack {acks[-1]} after {self.last_ack}"
        self.last_ack = acks[-1]

    def snapshot(self, member: MemberId) -> MemberSnapshot:
        return MemberSnapshot(member, tuple(self.pending), self.last_pub, self.last_ack)


def restore(snapshot: MemberSnapshot) -> MemberState:
    return MemberState(snapshot.pending, snapshot.last_pub, snapshot.last_ack)


def split(
    a: Iterable[Pub], b: Iterable[Pub], *, strict: bool = False
) -> tuple[list[Pub], list[Pub], list[Pub]]:
    """(what of ``a`` is before the first of ``b``, what both hold, what of ``b`` is after ``a``
    ends).

    Both are in order of number. Partial partitions leave holes (rmq#749): a message that only one
    of them holds, between messages that both should hold, is in none of the three.
    """
    rest_a, rest_b = list(a), list(b)
    if not rest_b:
        return rest_a, [], []
    start = 0
    while start < len(rest_a) and rest_a[start][0] < rest_b[0][0]:
        start += 1
    common, suffix = _common(rest_a[start:], rest_b, strict=strict)
    return rest_a[:start], common, suffix


def missed(
    states: dict[MemberId, MemberState],
    snapshots: Iterable[MemberSnapshot],
    ours: Sequence[MemberId],
    *,
    strict: bool,
) -> list[ActivityItem]:
    """What the left neighbour's state says that we (``states``) would have heard, had it been our
    neighbour before. ``ours``: this member, and those for whom it stands in.
    """
    theirs = {snapshot.id: restore(snapshot) for snapshot in snapshots}
    items = []
    for member in sorted({**states, **theirs}):
        own = states.setdefault(member, MemberState())
        found = missed_of_own if member in ours else missed_of_others
        items.append(found(member, own, theirs.get(member, MemberState()), strict=strict))
    return items


def missed_of_own(
    member: MemberId, own: MemberState, left: MemberState, *, strict: bool
) -> ActivityItem:
    """What of a publisher for which we stand in has come home to our left neighbour, and not to
    us."""
    _, home, _ = split(left.pending, own.pending, strict=strict)
    own.last_ack = left.acked
    return ActivityItem(member, tuple(home), ())


def missed_of_others(
    member: MemberId, own: MemberState, left: MemberState, *, strict: bool
) -> ActivityItem:
    """What of another publisher our left neighbour has heard, and we have not."""
    acked, _, news = split(own.pending, left.pending, strict=strict)
    return ActivityItem(member, tuple(news), tuple(number for number, _ in acked))


def _common(a: list[Pub], b: list[Pub], *, strict: bool = False) -> tuple[list[Pub], list[Pub]]:
    """What both hold, and the rest of ``b`` after the end of ``a``."""
    if strict:
        # KB-RMQ-07: find_common knew two cases, the same message in both and the end of ``a``.
        for at, (number, _) in enumerate(a):
            same = at < len(b) and b[at][0] == number
            assert same, f"case_clause in find_common: {number} where the other has a hole"
    common: list[Pub] = []
    at_a = at_b = 0
    while at_a < len(a) and at_b < len(b):
        if a[at_a][0] == b[at_b][0]:
            common.append(b[at_b])
            at_a += 1
            at_b += 1
        elif a[at_a][0] < b[at_b][0]:
            at_a += 1
        else:
            at_b += 1
    return common, b[at_b:]


class MembersState:
    """What one member, ``id``, remembers of every publisher: gm.erl's ``members_state``.

    ``states`` is None before the first catchup: a newcomer knows nothing.
    """

    def __init__(self, id: MemberId, bugs: GmBugs) -> None:
        self.states: dict[MemberId, MemberState] | None = None
        self._id = id
        self._bugs = bugs

    def of(self, publisher: MemberId) -> MemberState:
        assert self.states is not None
        state = self.states.get(publisher)
        if state is None:
            state = self.states[publisher] = MemberState()
        return state

    @property
    def own_pending(self) -> Sequence[Pub]:
        """Messages of this member itself that have not come home."""
        return () if self.states is None else self.of(self._id).pending

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way."""
        return self.states is None or all(state.is_settled for state in self.states.values())

    def account(
        self, item: ActivityItem, aliases: tuple[MemberId, ...]
    ) -> tuple[ActivityItem, tuple[int, ...]]:
        """Record one item; returns what goes on to the right, and which of this member's own
        messages are home."""
        state = self.of(item.publisher)
        if item.publisher != self._id and item.publisher not in aliases:
            state.publish(item.pubs)
            state.acknowledge(item.acks)
            return item, ()
        acks = state.come_home(item.pubs, item.acks, strict=self._bugs.strict_common)
        return ActivityItem(item.publisher, (), acks), acks if item.publisher == self._id else ()

    def erasable(self, aliases: tuple[MemberId, ...]) -> tuple[MemberId, ...]:
        """The dead for whom this member stands in and of whom nothing is in flight."""
        assert self.states is not None
        states = self.states
        return aliases and tuple(a for a in aliases if states.get(a, MemberState()).is_settled)

    def forget_erased(self, known: Iterable[MemberId]) -> None:
        """Keep the states of ``known``, the members of a new view."""
        if self._bugs.blank_member_crash:
            # KB-RMQ-31: the original looks its members up in states that a newcomer hasn't got
            # before its first catchup (badmap in find_member_or_blank).
            assert self.states is not None, "badmap: a member without states was told of a new view"
        if self.states is not None:
            kept = dict.fromkeys(known)
            self.states = {m: state for m, state in self.states.items() if m in kept}

    # -- catchup -----------------------------------------------------------------------------------

    def catchup(self, to: MemberId, version: int) -> Catchup:
        """All of it, for a new right neighbour."""
        assert self.states is not None
        snapshots = tuple(state.snapshot(member) for member, state in self.states.items())
        return Catchup(to, self._id, version, snapshots)

    def adopt(self, snapshots: Iterable[MemberSnapshot]) -> None:
        """A newcomer's left neighbour has told what it knows."""
        self.states = {snapshot.id: restore(snapshot) for snapshot in snapshots}

    def missed(
        self, snapshots: Iterable[MemberSnapshot], aliases: tuple[MemberId, ...]
    ) -> list[ActivityItem]:
        """What of an established member's left neighbour's state is news."""
        assert self.states is not None
        ours = (self._id, *aliases)
        return missed(self.states, snapshots, ours, strict=self._bugs.strict_common)
