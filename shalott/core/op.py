"""Operations: what a client asked for, and what came of it.

The contract is Jepsen's (jepsen.history): an operation has an invocation and at most one
completion. ``ok``: it happened. ``fail``: it certainly did not. ``info``: it may have. A process
that gets an ``info`` is retired; its successor's id is the old one plus the concurrency.
A whole operation is a row of the history (history.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

OpType = Literal["ok", "fail", "info"]

NEMESIS = -1  # the process id of faults, probes and observations


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """What a generator asks a worker to do. ``extra``: what its client needs to know besides; it
    stands in the history until the completion says something else."""

    f: str
    key: str = ""
    value: int | None = None
    extra: Mapping[str, Any] | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. What a client can't classify is info, which it answers, or raises as
    ``Indefinite``: its process is retired then, and the client closed.

    A dequeue that found the queue empty is ``fail`` with error "empty": certainly nothing was
    taken. ``key``: where it happened, if the client chose that. ``key``, ``value`` and ``extra``
    replace in the history what the invocation said.
    """

    type: OpType
    key: str | None = None
    value: int | None = None
    offset: int | None = None
    redelivered: bool | None = None
    error: str | None = None
    extra: Mapping[str, object] | None = None
