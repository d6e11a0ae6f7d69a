"""QueueContext: what all queue processes of a node share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shalott.broker.base.env import Env
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored.storage import QueueStorage
from shalott.broker.rabbit.replica.limits import DeadLetter


@dataclass(frozen=True)
class QueueContext:
    """A node, as its queue processes see it.

    ``fail`` ends the node: its disk failed. ``restarted``: this is not the node's first broker
    since its process began.
    """

    env: Env
    config: NodeConfig
    metadata: Metadata
    storage: QueueStorage
    dead_letters: Callable[[QueueRow], DeadLetter] | None = None
    fail: Callable[[str], None] | None = None
    restarted: bool = False
