"""What the application does with a message: how long it works on it, and what it says in the end.

Drawn for each delivery from the run's seed, the group and the message, so that a message that some
consumer can't do with is one that none of its group can do with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shalott.checkers.groups.group_rules import Group
from shalott.core.rng import draw_float, stream_key

Outcome = Literal["success", "later", "suspend"]
ATTEMPTS = 64  # of one message that draw different numbers
LOW_BITS = (1 << 32) - 1  # of a value: the message's number in its run


@dataclass(frozen=True, slots=True)
class Work:
    time_ms: float
    outcome: Outcome


@dataclass(slots=True, kw_only=True)
class Listener:
    """Of all groups of a run. Shares are of the deliveries, but ``poison``: of the messages, which
    no attempt can consume. ``calm``: from now on everything is consumed at once.
    """

    seed: int
    process_ms: int
    slow_ms: int
    slow: float
    later: float
    suspend: float
    poison: float
    calm: bool = False
    _keys: dict[tuple[str, str], int] = field(default_factory=dict)

    def work(self, group: Group, value: int, attempt: int) -> Work:
        """Of the ``attempt``-th time that a message of the group is consumed, counted from 0."""
        place = (value & LOW_BITS) * ATTEMPTS + min(attempt, ATTEMPTS - 1)
        time_ms = 2 * self.process_ms * self._draw(group, "time", place)
        if self.calm:
            return Work(time_ms, "success")
        if self._draw(group, "slow", place) < self.slow:
            time_ms = self.slow_ms
        return Work(time_ms, self._outcome(group, value & LOW_BITS, place))

    def _outcome(self, group: Group, number: int, place: int) -> Outcome:
        if group.broadcast:
            return "success"  # nobody retries for it
        is_poison = self._draw(group, "poison", number) < self.poison
        share = self.suspend if group.orderly else self.later
        if is_poison or self._draw(group, "outcome", place) < share:
            return "suspend" if group.orderly else "later"
        return "success"

    def _draw(self, group: Group, what: str, place: int) -> float:
        key = self._keys.get((what, group.name))
        if key is None:
            key = stream_key(self.seed, "listener", what, group.name)
            self._keys[what, group.name] = key
        return draw_float(key, place)
