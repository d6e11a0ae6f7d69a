"""What nodes of our own broker say to each other, by name, of who sees the bytes (NamesMessages in
cluster/system.py).

Every protocol of theirs is a row of messages, each of which says in its first bytes how long it is.
A reader keeps what is not whole yet. It may begin anywhere: where the bytes make no message, they
are dropped, and the next ones are the beginning of one, as nodes write whole messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from shalott.broker.base.errors import BrokerError

# (the bytes of one end): the size and the name of the first message; None if it is not whole yet.
# Raises any error of decoding for what is none.
Cut = Callable[[bytes], tuple[int, str] | None]


class NamingReader:
    """One end of one connection."""

    __slots__ = ("_cut", "_rest")

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._rest = b""

    def __call__(self, data: bytes) -> Sequence[str]:
        """The names of the messages that became whole."""
        rest, self._rest = self._rest + data, b""
        names: list[str] = []
        try:
            while rest and (found := self._cut(rest)) is not None:
                names.append(found[1])
                rest = rest[found[0] :]
        except (BrokerError, ValueError, IndexError, msgspec.DecodeError):
            return names
        self._rest = rest
        return names


def cut_counted(data: bytes, most: int, name_of: Callable[[bytes], str]) -> tuple[int, str] | None:
    """A message behind four bytes that say how long it is."""
    if len(data) < 4:
        return None
    end = 4 + int.from_bytes(data[:4], "big")
    if not 4 < end <= most:
        raise ValueError("that is no length")
    return (end, name_of(data[4:end])) if len(data) >= end else None
