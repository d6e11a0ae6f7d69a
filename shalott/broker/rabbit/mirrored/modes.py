"""Why a queue process was started."""

from __future__ import annotations

from dataclasses import dataclass

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.processes.process import Caller


@dataclass(frozen=True, slots=True)
class DeclareStart:
    """``row`` is what was declared, without a pid."""

    row: QueueRow
    caller: Caller


@dataclass(frozen=True, slots=True)
class RecoverStart:
    """``seen``: the dead master in whose place it shall be. ``snapshot`` is the row as it was then,
    under KB-RMQ-02 only.
    """

    seen: Pid | None
    snapshot: QueueRow | None = None


@dataclass(frozen=True, slots=True)
class MirrorStart:
    caller: Caller | None


Start = DeclareStart | RecoverStart | MirrorStart
