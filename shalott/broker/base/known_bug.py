"""What the catalogue knows of one historical bug."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBug:
    """One bug: what it is, what sets it off, what is seen of it, and how it was mended.

    ``switch`` is its name in words, as comments at its place in the code use it; ``systems`` are
    those that have the place.
    """

    id: str
    switch: str
    title: str
    links: tuple[str, ...]
    confidence: Literal["A", "B", "C", "own"]
    trigger: str
    symptom: str
    fix: str
    systems: tuple[str, ...] = ("mirrored",)
    shown_by: str = ""  # the test that shows it, where no search has a scenario for it
