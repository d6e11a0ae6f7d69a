"""What a GM member has to say and has not said yet: its own messages, and who wants to know when
they are home. Numbers are given when a message is taken, so they are what the ring will see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from shalott.broker.rabbit.gm.activity import Pub


class Outgoing:
    """One member's. ``last`` is the number of the newest message, -1 before the first."""

    def __init__(self) -> None:
        self.last = -1
        self.pubs: list[Pub] = []  # in the buffer
        self.bytes = 0  # of their payloads
        self._wanted: deque[tuple[int, int]] = deque()  # (number, token)

    def add(self, payload: bytes) -> None:
        """Number a message and keep it until it is taken."""
        self.last += 1
        self.pubs.append((self.last, payload))
        self.bytes += len(payload)

    def take(self) -> tuple[Pub, ...]:
        """What is to be sent now; the buffer is empty then."""
        pubs, self.pubs, self.bytes = tuple(self.pubs), [], 0
        return pubs

    def want_confirm(self, token: int) -> None:
        """For the newest message."""
        self._wanted.append((self.last, token))

    def confirmed(self, numbers: Sequence[int]) -> list[int]:
        """Tokens of what is home, now that ``numbers`` are, and with them all that is older."""
        tokens = []
        while numbers and self._wanted and self._wanted[0][0] <= numbers[-1]:
            tokens.append(self._wanted.popleft()[1])
        return tokens

    def drop_confirms(self) -> list[int]:
        """Tokens that nobody will be asked about any more."""
        tokens = [token for _, token in self._wanted]
        self._wanted.clear()
        return tokens
