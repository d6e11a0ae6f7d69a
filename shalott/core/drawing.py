"""Drawing a plan's knobs from a seed: each knob has a random stream of its own, named after it.

So another knob, or another range of one, moves nobody else's draws. What a knob may be is a tuple
of choices (repeat one to favour it) or a ``Range``; whoever searches may narrow it by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shalott.core.rng import Stream

Choice = TypeVar("Choice")


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two others, in whole steps from the lower one."""

    low: float
    high: float
    step: float = 1

    def draw(self, rng: Stream) -> float:
        steps = int((self.high - self.low) / self.step + 1e-9)
        return self.low + self.step * rng.below(steps + 1)


Allowed = Sequence[Any] | Range
Knobs = Mapping[str, Allowed]


@dataclass(frozen=True, slots=True)
class Draw:
    """A seed's draws. ``knobs``: what some knobs may be, in place of what they usually may."""

    seed: int
    knobs: Knobs = field(default_factory=dict)

    def stream(self, knob: str) -> Stream:
        return Stream(self.seed, "swarm", knob)

    def choice(self, knob: str, choices: Sequence[Choice]) -> Choice:
        return self.stream(knob).choice(choices)

    def range(self, knob: str, allowed: Range) -> float:
        return round(allowed.draw(self.stream(knob)), 6)

    def knob(self, knob: str, usually: Allowed) -> Any:
        """The knob's value, of what was asked for or else of what it usually may be."""
        allowed = self.knobs.get(knob, usually)
        return (
            self.range(knob, allowed) if isinstance(allowed, Range) else self.choice(knob, allowed)
        )
