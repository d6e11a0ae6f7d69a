"""DocumentedLoss: a way in which a system's manual says that what was acknowledged may be lost.

A system's record tells which of them its settings leave open (``SystemRecord.documented_losses``).
None excuses anything: a run that lost messages is invalid. A loss in which all is seen that the
manual describes is told with the manual's address, and each other one as a loss in no documented
way (checkers/history/documented_losses.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shalott.core.plan import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedLoss:
    """``name``: a word by which results call it. ``text``: what happens, a clause. ``manual``: the
    address that says so. ``closed_by``: what rules it out, in words.

    What must be seen: a fault that does any of ``effects`` and none of ``but_not`` to ``hits``: to
    who was ``master`` when it began, or to ``all`` nodes or a ``majority`` of them, by one fault or
    by several. What is lost was acknowledged at most ``before_ms`` before it (None: whenever before
    it), and not later than it began; of what does not end a master (cuts, pauses), not later than
    ``after_ms`` after its end. ``successor``: who was master afterwards: another node, the same
    one, or any.
    """

    name: str
    text: str
    manual: str
    effects: tuple[Effect, ...]
    but_not: tuple[Effect, ...] = ()
    closed_by: str = ""
    hits: Literal["master", "majority", "all"] = "master"
    before_ms: float | None = 0
    after_ms: float = 0
    successor: Literal["another", "same", "any"] = "any"

    def __post_init__(self) -> None:
        if not (self.effects and self.manual.startswith("https://")):
            raise ValueError(f"{self.name}: it needs the effects of faults and a manual's address")
