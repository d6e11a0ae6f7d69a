"""Ring: the members of a group as one of them sees them: its view, and its two neighbours.

Failure detection is the neighbours': each member watches its left and its right one, and has one
recorded dead a moment after the link to it broke.
"""

from __future__ import annotations

from collections.abc import Callable

from shalott.broker.rabbit.gm.activity import CheckNeighbours, RingMessage
from shalott.broker.rabbit.gm.bugs import GmBugs
from shalott.broker.rabbit.gm.group import View
from shalott.broker.rabbit.gm.inputs import (
    Demonitor,
    MembersChanged,
    Monitor,
    Output,
    Send,
    Side,
    StartNeighbourDownTimer,
)
from shalott.broker.rabbit.metadata.records import MemberId
from shalott.broker.rabbit.processes.messages import Pid


class Ring:
    """Of the member ``id``; before it has joined it is alone, and has no view."""

    def __init__(self, id: MemberId, bugs: GmBugs, emit: Callable[[Output], None]) -> None:
        self.view: View | None = None
        self.left = self.right = id
        self._id = id
        self._bugs = bugs
        self._emit = emit
        # The last version of the view in which another member was our left neighbour. What the
        # present one sent at that version or before belongs to an earlier time as our neighbour,
        # and reached us by another way since.
        self._left_floor = -1
        # Neighbours whose link broke, or was not there yet, to be buried in a moment (the original
        # sleeps first): what is said by a new link comes after what was lost with the old.
        self._broken: dict[Side, MemberId] = {}

    @property
    def is_alone(self) -> bool:
        """Whether this member is the only one of its ring; at its end, whether it was."""
        return self.right == self._id

    @property
    def aliases(self) -> tuple[MemberId, ...]:
        """The dead for whom this member stands in."""
        assert self.view is not None
        return self.view.members[self._id].aliases

    def is_neighbour(self, side: Side, member: MemberId) -> bool:
        current = self.left if side == "left" else self.right
        return current == member != self._id

    # -- links -------------------------------------------------------------------------------------

    def hears(self, message: RingMessage) -> bool:
        """Whether it comes from the left neighbour, as such."""
        if message.sender != self.left or message.sender == self._broken.get("left"):
            return False
        # OUR-05: the original has no floor.
        return message.version > self._left_floor or self._bugs.hears_former_neighbours

    @property
    def speaks(self) -> bool:
        """Whether there is a right neighbour to be told."""
        return self.right not in (self._id, self._broken.get("right"))

    def link_broke(self, side: Side, member: MemberId) -> None:
        if not self._bugs.hears_broken_left:  # OUR-10
            self._broken[side] = member
        self._emit(StartNeighbourDownTimer(side, member))

    # -- views -------------------------------------------------------------------------------------

    def change_view(self, view: View) -> bool:
        """Tell of births and deaths, and meet the new neighbours; whether the right one is new."""
        before = self.view
        assert before is not None
        self.view = view
        if self.left != view.members[self._id].left:
            self._left_floor = before.version
        self.announce(
            tuple(member.pid for member in before.known()),
            tuple(member.pid for member in view.known()),
        )
        return self.check_neighbours()

    def announce(self, before: tuple[Pid, ...], after: tuple[Pid, ...]) -> None:
        were, are = dict.fromkeys(before), dict.fromkeys(after)
        births = tuple(pid for pid in after if pid not in were)
        deaths = tuple(pid for pid in before if pid not in are)
        if births or deaths:
            self._emit(MembersChanged(births, deaths))

    def check_neighbours(self) -> bool:
        """Whether the right one is new."""
        assert self.view is not None
        place = self.view.members[self._id]
        right_before = self.right
        self.left = self._meet("left", self.left, place.left)
        self.right = self._meet("right", self.right, place.right)
        return self.right != right_before

    def _meet(self, side: Side, before: MemberId, now: MemberId) -> MemberId:
        if before == now:
            return now
        assert self.view is not None
        if before != self._id:
            self._emit(Demonitor(side, before))
            self._emit(Send(before, CheckNeighbours(before, self._id, self.view.version)))
        if now != self._id:
            self._emit(Send(now, CheckNeighbours(now, self._id, self.view.version)))
            self._emit(Monitor(side, now))
        return now
