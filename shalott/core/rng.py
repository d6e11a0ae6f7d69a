"""Keyed random streams: every draw is a function of (seed, names, position) and of nothing else.

The mixer is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014): the n-th number of a stream is mix(key + n * gamma). A stream's key folds the seed and
the stream's names, so one subsystem drawing more or less never shifts what another one draws, and a
purely functional generator can keep its position as a plain integer.

A ``Draw`` draws a plan's knobs from a seed, each from a stream named after it: another knob, or
another range of one, moves no other knob's draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, overload

Item = TypeVar("Item")

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


def mix64(value: int) -> int:
    """SplitMix64's finaliser: a bijection of 64-bit words."""
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def stream_key(seed: int, *names: str | int) -> int:
    """The key of the stream that ``names`` call by name under ``seed``."""
    key = mix64(seed + GAMMA)
    for name in names:
        word = FNV_OFFSET
        for byte in str(name).encode():
            word = ((word ^ byte) * FNV_PRIME) & MASK
        key = mix64(key ^ mix64(word))
    return key


def draw_u64(key: int, position: int) -> int:
    """The number at ``position`` of a stream."""
    # mix64, written out: a simulation draws several numbers for each segment and disk call.
    value = (key + (position + 1) * GAMMA) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def draw_float(key: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits."""
    return (draw_u64(key, position) >> 11) * (1.0 / (1 << 53))


def draw_below(key: int, position: int, limit: int) -> int:
    """An integer in [0, limit). The bias of the multiply-shift is below limit / 2**64."""
    assert limit > 0
    return (draw_u64(key, position) * limit) >> 64


class Stream:
    """A stream with a position, for code that is not purely functional."""

    __slots__ = ("_key", "_position")

    def __init__(self, seed: int, *names: str | int) -> None:
        self._key = stream_key(seed, *names)
        self._position = 0

    def next_u64(self) -> int:
        # draw_u64, written out.
        self._position = position = self._position + 1
        value = (self._key + position * GAMMA) & MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        return value ^ (value >> 31)

    def random(self) -> float:
        return (self.next_u64() >> 11) * (1.0 / (1 << 53))

    def getrandbits(self, k: int, /) -> int:
        value = 0
        for _ in range(0, k, 64):
            value = (value << 64) | self.next_u64()
        return value >> (-k % 64)

    def below(self, limit: int) -> int:
        assert limit > 0
        return (self.next_u64() * limit) >> 64

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """A uniformly permuted copy (Fisher and Yates)."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return result

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """``count`` distinct positions of ``items``, in random order."""
        assert 0 <= count <= len(items)
        return self.shuffled(items)[:count]


Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Range:
    """A number between two others, in whole steps from the lower one."""

    low: float
    high: float
    step: float = 1

    def draw(self, rng: Stream) -> float:
        steps = int((self.high - self.low) / self.step + 1e-9)
        return self.low + self.step * rng.below(steps + 1)


Allowed = Sequence[object] | Range
Knobs = Mapping[str, Allowed]


@dataclass(frozen=True)
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

    @overload
    def knob(self, knob: str, usually: Range) -> float: ...

    @overload
    def knob(self, knob: str, usually: Sequence[Choice]) -> Choice: ...

    def knob(self, knob: str, usually: Allowed) -> object:
        """The knob's value, of what was asked for or else of what it usually may be."""
        allowed = self.knobs.get(knob, usually)
        return (
            self.range(knob, allowed) if isinstance(allowed, Range) else self.choice(knob, allowed)
        )
